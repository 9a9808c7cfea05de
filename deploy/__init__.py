"""What makes and checks a release: the wheel and its list of packages, and the audit of both.

Beside it lie the files that deployments use; nothing of this is in the wheel.
"""
