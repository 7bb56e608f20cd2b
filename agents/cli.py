import sys
from streams.settings import load_settings
from agents.worker import run_worker
import logging
h=logging.StreamHandler()
class F(logging.Formatter):
    def format(self, r):
        base=super().format(r)
        std=set(logging.LogRecord('',0,'',0,'',(),None).__dict__)|{'message','asctime','taskName'}
        return f"{r.relativeCreated:.0f} {r.levelname} {r.name} {base} "+str({k:v for k,v in r.__dict__.items() if k not in std})
h.setFormatter(F())
logging.basicConfig(level=logging.INFO, handlers=[h])
sys.exit(run_worker(load_settings().settings))
