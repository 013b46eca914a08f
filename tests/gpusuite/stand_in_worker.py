"""Stands for gpusuite/worker.py without torch: answers with recorded results, changed for some GPUs.

The file named by STAND_IN has `results` by stage, and `changes`: GPU -> stage -> what happens (`until` a file exists, `hang`, `die`, `error`,
`scale` of each figure, `once` for the first time only, `set` of the result's fields). Each answer has the options that
were asked for.
"""

import json
import os
import sys
import time
from pathlib import Path

MARK = "@gpusuite "
PLAN = json.loads(Path(os.environ["STAND_IN"]).read_text())


def main() -> None:
    gpu, asked = sys.argv[1], {}
    change = PLAN["changes"].get(gpu, {})
    if "start" in change:
        print("ModuleNotFoundError: No module named 'torch'")
        sys.exit(1)
    print("a line that a library prints", flush=True)
    answer({"ready": True, "torch": "2.11.0", "cuda": "13.0", "cudnn": 1, "nccl": "2.28.9"})
    for line in sys.stdin:
        order = json.loads(line)
        stage = order["stage"]
        asked[stage] = asked.get(stage, 0) + 1
        result = json.loads(json.dumps(PLAN["results"][stage]))
        how = change.get(stage, {})
        if "once" in how and asked[stage] > 1:
            how = {}
        while "until" in how and not Path(how["until"]).exists():
            time.sleep(0.01)
        if "hang" in how:
            time.sleep(60)
        if "die" in how:
            print("CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(139)
        if "error" in how:
            result = {"error": how["error"]}
        for row in result.get("gemms", []):
            row["tflops"] *= how.get("scale", 1)
        result.update(how.get("set", {}), options=order["options"])
        answer(result)


def answer(values: dict) -> None:
    print(MARK + json.dumps(values), flush=True)


main()
