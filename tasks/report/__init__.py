"""Stage `report`: all that was measured on one page."""
