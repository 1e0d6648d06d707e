"""Bulk jobs: an operator's verb for many orders, carried out in the background by the supervisors.

`steering` starts, stops and resumes a job; `selection` chooses its orders; `working` carries it out, batch by batch;
`reading` answers what became of it; `telling` tells people.

May import: insight, ledger, recovery and the rooms below; and the definitions at the top of `supervision`.
Public: steering.start, steering.start_chosen, steering.stop, steering.resume, selection.preview, working.turn, working.relay, reading.
"""
