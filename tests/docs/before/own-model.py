"""The file net.py that the page shows."""

import inspect
import re
from pathlib import Path

page = Path(inspect.currentframe().f_code.co_filename).parents[3] / "docs" / "own-model.md"
code = re.search(r'^```py title="net.py"\n(.*?)^```', page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
Path("net.py").write_text(code[1], encoding="utf-8")
