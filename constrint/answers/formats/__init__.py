"""The files of other tools: each module writes rankings and spaces (`FORMAT`), tuning records (`RECORDS`), or both."""
