"""The store of measurements: records, the best of them, and formats of other tools.

    record     one trial as it is stored; proposals    one proposal with its gates
    store      add, find, count; writer                the thread that adds while devices work
    choices    the winners among records, and the file that look-ups read
    place      addresses; backends, sqlite, postgres   databases; database    transactions over forks and replaced files
    schema     tables, columns and checksums; sqlite_file   whose a file is, damage, and what can be read of it

It earns its lines by surviving: crashes, full disks, damaged files, many processes and many versions.
"""
