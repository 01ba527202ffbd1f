"""The report as a page: its parts, and how they are written as HTML with inline SVG and as Markdown."""
