"""The CDK stacks. Each file reads as a parts list; settings come in as objects, ids and addresses as arguments."""
