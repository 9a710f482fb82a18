"""What people see: reports, the notebook, the terminal, the page.

In:   stored runs, and what the doctor and the analysis say of them.
Out:  text, HTML, pictures.
"""
