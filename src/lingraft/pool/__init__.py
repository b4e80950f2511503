"""Workers: processes of this machine, and Ray."""
