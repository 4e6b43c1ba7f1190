"""The dashboard and the alerts of packaging/, checked by Prometheus' promtool and by the types that Grafana's
schema generates (Go module github.com/grafana/grafana-foundation-sdk), and against the metrics of a weir; and
spans, read by the types of OpenTelemetry's collector (go.opentelemetry.io/collector/pdata).

The Go modules are fetched and built below target/monitoring; they never become part of this project. Prints a
line for each check; fails if one does not hold."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from recorded_webhooks import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEIR = os.environ.get("WEIR", os.path.join(ROOT, "target", "debug", "weir"))
BUILT = os.path.join(ROOT, "target", "monitoring")
DASHBOARD = os.path.join(ROOT, "packaging/grafana/weir.json")
RULES = os.path.join(ROOT, "packaging/prometheus/weir.rules.yml")
SDK = "github.com/grafana/grafana-foundation-sdk/go v0.0.22"
PDATA = "go.opentelemetry.io/collector/pdata v1.30.0"
# Words that Grafana replaces in an expression.
VARIABLES = {"$__rate_interval": "5m", "$job": ".+", "$instance": ".+"}
# These appear with the first hook, webhook, table or worker.
WITH_SETTINGS = {
    "weir_events_waiting", "weir_events_rejected", "weir_hook_waiting", "weir_hook_failures",
    "weir_webhook_deliveries_total",
}


def run(what, *command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{what}: failed\n{done.stdout}")
    print(f"{what}: well")
    return done.stdout


def build(name, module):
    """Builds a program of conformance/monitoring, which needs a Go module. Returns its path."""
    folder = os.path.join(BUILT, name)
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(ROOT, "conformance/monitoring", name + ".go")
    shutil.copy(source, os.path.join(folder, "main.go"))
    with open(os.path.join(folder, "go.mod"), "w") as file:
        file.write(f"module {name}\n\ngo 1.23.0\n\nrequire {module}\n")
    subprocess.run(["go", "build", "-mod=mod", "-o", name, "."], cwd=folder, check=True)
    return os.path.join(folder, name)


def check_traces(work):
    """Lets the types of OpenTelemetry's collector read the spans of a request and of a visit."""
    program, port, http = build("collector", PDATA), free_port(), free_port()
    pool, upstream = os.path.join(work, "traced"), os.path.join(work, "up.git")
    subprocess.run(["git", "init", "-q", "--bare", upstream], check=True)
    subprocess.run([WEIR, "init", pool], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(pool, "weir.toml"), "a") as file:
        file.write(f'\n[traces]\nendpoint = "http://127.0.0.1:{port}"\n')
    subprocess.run([WEIR, "--pool", pool, "-q", "add", "--name", "up", upstream], check=True)
    taken = os.path.join(work, "spans")
    with open(taken, "w") as out:
        collector = subprocess.Popen([program, f"127.0.0.1:{port}"], stdout=out)
    serve = [WEIR, "--pool", pool, "-q", "serve", "--git", "127.0.0.1:0", "--http", f"127.0.0.1:{http}"]
    server = subprocess.Popen(serve)
    try:
        lines = []
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{http}/api/v1/repositories/up").read()
            except OSError:
                pass
            time.sleep(0.2)
            with open(taken) as file:
                lines = [line.split() for line in file]
            if {"GET", "visit"} <= {line[-1] for line in lines}:
                break
        wrong = [line for line in lines if line[:2] != ["span", "weir"] or line[5] != "true"]
        if wrong or not {"GET", "visit"} <= {line[-1] for line in lines}:
            sys.exit(f"the spans: {wrong or lines}")
        print(f"{len(lines)} spans, by the types of OpenTelemetry's collector: well")
    finally:
        for process in (server, collector):
            process.terminate()
            process.wait()


def check_dashboard():
    program = build("dashboard", SDK)
    run("the dashboard, by the types of Grafana's schema", program, DASHBOARD)


def expressions():
    """Returns the expressions of the dashboard, as Prometheus gets them."""
    with open(DASHBOARD) as file:
        panels = json.load(file)["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    for name, value in VARIABLES.items():
        found = [expression.replace(name, value) for expression in found]
    return found


def check_expressions(work, found):
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(found)]
    path = os.path.join(work, "panels.yml")
    with open(path, "w") as file:
        # JSON is YAML.
        json.dump({"groups": [{"name": "panels", "rules": rules}]}, file)
    run(f"{len(found)} expressions of the dashboard, by promtool", "promtool", "check", "rules", path)


def metrics(work):
    """Returns the text that a weir with an empty pool gives Prometheus."""
    pool, port = os.path.join(work, "pool"), free_port()
    subprocess.run([WEIR, "init", pool], check=True, stdout=subprocess.DEVNULL)
    serve = [WEIR, "--pool", pool, "-q", "serve", "--git", "127.0.0.1:0", "--metrics", f"127.0.0.1:{port}"]
    server = subprocess.Popen(serve)
    try:
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    return answer.read().decode()
            except OSError:
                time.sleep(0.1)
        sys.exit("weir gave no metrics")
    finally:
        server.terminate()
        server.wait()


def main():
    with tempfile.TemporaryDirectory() as work:
        run("the alerts, by promtool", "promtool", "check", "rules", RULES)
        tests = os.path.join(os.path.dirname(RULES), "weir.rules.test.yml")
        run("when the alerts fire, by promtool", "promtool", "test", "rules", tests)
        check_dashboard()
        check_traces(work)
        found = expressions()
        check_expressions(work, found)
        text = metrics(work)
        run("the metrics of weir, by promtool", "promtool", "check", "metrics", input=text)
        here = set(re.findall(r"^# TYPE (\S+)", text, re.M)) | WITH_SETTINGS
        with open(RULES) as file:
            found.append(file.read())
        words = set(re.findall(r"\b(?:weir|process)_\w+", "\n".join(found)))
        unknown = {word for word in words if re.sub(r"_bucket$", "", word) not in here}
        if unknown:
            sys.exit(f"no such metrics: {sorted(unknown)}")
        print(f"{len(words)} metrics of the dashboard and the alerts are there: well")


main()
