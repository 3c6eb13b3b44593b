"""gunicorn.conf.py -- one engine for all workers. limited.py is the application."""
preload_app = True  # the master opens the engine, before it forks
workers = 4


def post_fork(server, worker):
    from limited import engine
    engine.lead()  # one of the workers makes the turns; if it ends, another one does


def child_exit(server, worker):
    from limited import engine
    engine.process_died()  # nobody has to find out
