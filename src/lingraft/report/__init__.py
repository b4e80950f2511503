"""Pictures and pages of what runs hold; `write.write_report` makes them."""
