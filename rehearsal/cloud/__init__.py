"""The embedded AWS: moto's services in this process, CloudFormation that behaves like the real one, and our own types.

Entry point: :class:`rehearsal.cloud.server.EmbeddedAws`. Importing this package sets moto's own switches, which moto
reads from the environment when it is imported or when a service is first used; they must be there before `import
moto`.
"""

from __future__ import annotations

import os

#: moto's switches and why each is set.
_MOTO_SWITCHES = {
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",  # pcluster's validators look AWS-managed policies up
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",  # only the images that seed.py makes; loading moto's list costs time
}
os.environ.update(_MOTO_SWITCHES)
