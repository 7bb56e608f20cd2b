"""One builder for a whole service, for every test and benchmark that needs one.

`builder` starts and ends it, `settings` has its settings, `waiting` waits for what must come. On
top of it: `epochs` sends people's entries, `counting` writes frames and knows each entry's fate,
`written_log` writes the release log in the jobs' place, `jobs` runs the jobs in the test's process.
"""
