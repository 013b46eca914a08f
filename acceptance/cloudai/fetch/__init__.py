"""Downloads a repository of Hugging Face or a model of NGC: the program of a download job, on a node, by itself.

`download.py` gives the job all of it as one file: `python3 -I fetch.pyz SPEC.json` needs Python 3.9 and nothing else;
for a token in Secrets Manager the AWS CLI.

Each file is written under another name, goes on where a killed program ended, is compared with the size and the
checksum that the source states, and then renamed. The note COMPLETE is written last. The token is in the memory of
this process only, and goes to no other host than the source's.
"""
