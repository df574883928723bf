"""The papers' tables, run again: `diffclust reproduce tell/table1`.

A table is data (`spec.py`; a file for each paper), runs are lines of CSV files (`record.py`), and what is printed is
made from those files and from the published figures (`report.py`).
"""
