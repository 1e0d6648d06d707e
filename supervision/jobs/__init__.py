"""Bulk jobs: an operator's verb for many orders, carried out in the background by the supervisors.

`steering` starts, stops and resumes a job; `selection` chooses its orders; `working` carries it out, batch by batch;
`acting` does the verb to one order; `reading` answers what became of the job; `telling` tells people.

May import: insight, ledger, recovery and the rooms below; and the definitions at the top of `supervision`.
Public: steering, selection, working, acting, reading, telling.
"""
