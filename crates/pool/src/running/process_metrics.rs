//! Metrics of the requests to a process, and of the process.

use std::fmt::Write;
use std::fs;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};
use weir_serve::{RequestKind, RequestResult, ServingCounts};

use crate::running::metrics_text::{head, one, write_histogram};

/// The commit that the program was built from, if `make build` or `make dist` built it.
pub const COMMIT: Option<&str> = option_env!("WEIR_COMMIT");

/// Writes the metrics of requests.
pub(crate) fn write_serving(text: &mut String, counts: &ServingCounts) {
    let [open, accepted, refused] = counts.connections();
    one(text, "weir_connections", "gauge", "Connections of clients", open);
    one(text, "weir_connections_total", "counter", "Connections of clients that there were", accepted);
    let help = "Connections of clients, and requests through proxies, that were too many";
    one(text, "weir_connections_refused_total", "counter", help, refused);
    let name = "weir_requests_total";
    head(text, name, "counter", "Requests of clients");
    for kind in RequestKind::ALL {
        for result in RequestResult::ALL {
            let (count, kind, result) = (counts.of(kind).with(result), kind.name(), result.name());
            let _ = writeln!(text, "{name}{{kind=\"{kind}\",result=\"{result}\"}} {count}");
        }
    }
    let name = "weir_response_bytes_total";
    head(text, name, "counter", "Bytes of answers to clients");
    for kind in RequestKind::ALL {
        let _ = writeln!(text, "{name}{{kind=\"{}\"}} {}", kind.name(), counts.of(kind).bytes());
    }
    let name = "weir_request_duration_seconds";
    head(text, name, "histogram", "Time from a request to the end of its answer");
    for kind in RequestKind::ALL {
        let label = format!("kind=\"{}\"", kind.name());
        write_histogram(text, name, &label, &counts.of(kind).durations.cumulative());
    }
}

/// Writes what the process uses, by the names that Prometheus's own clients have for it.
pub(crate) fn write_process(text: &mut String) {
    head(text, "weir_build_info", "gauge", "The version of weir, and the commit that it was built from");
    let (version, commit) = (env!("CARGO_PKG_VERSION"), COMMIT.unwrap_or_default());
    let _ = writeln!(text, "weir_build_info{{version=\"{version}\",commit=\"{commit}\"}} 1");
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return };
    // The name of the program, in parentheses, may have spaces (proc_pid_stat(5)).
    let fields: Vec<u64> = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.split(' ').map(|field| field.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let ask = |what| sysconf(what).ok().flatten().map_or(0, |value| value as u64);
    let (ticks, page) = (ask(SysconfVar::CLK_TCK).max(1), ask(SysconfVar::PAGE_SIZE));
    let seconds = |ticks_of: u64| ticks_of as f64 / ticks as f64;
    let name = "process_cpu_seconds_total";
    head(text, name, "counter", "Processor time, of user and system");
    let _ = writeln!(text, "{name} {}", seconds(field(14) + field(15)));
    one(text, "process_resident_memory_bytes", "gauge", "Memory that is resident", field(24) * page);
    one(text, "process_virtual_memory_bytes", "gauge", "Memory that is mapped", field(23));
    one(text, "process_threads", "gauge", "Threads", field(20));
    if let Some(booted) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(booted_at) {
        let name = "process_start_time_seconds";
        head(text, name, "gauge", "When it was started, in seconds since 1970");
        let _ = writeln!(text, "{name} {}", booted as f64 + seconds(field(22)));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        one(text, "process_open_fds", "gauge", "Files that are open", open.count() as u64);
    }
    if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        one(text, "process_max_fds", "gauge", "Files that may be open", most);
    }
}

/// Returns when the machine was started, in seconds since 1970, as `/proc/stat` says.
fn booted_at(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
