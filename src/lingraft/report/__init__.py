"""Pictures and pages of what runs hold."""

from lingraft.report.write import write_report

__all__ = ["write_report"]
