//! Check `clock`: is the clock disciplined, by whom and from where, and does the coordinator agree.
//!
//! Read-only: the clock is never set, `adjtimex(2)` is asked without any mode bit, so it needs no capability, and time
//! services are asked what they tell anybody on their machine.
//!
//! Tour: `chrony`, `ntpd`, `timesync` (what each service says of its sources), `udp` (how the first two are asked).

mod chrony;
mod ntpd;
mod timesync;
mod udp;

use std::io;

use outrider_protocol::{ClockFacts, ClockOffset, Fact, KernelClock, TimeSource};

use super::{SenseContext, process};

/// Most sources of one service that are told of.
const MAX_SOURCES: u32 = 16;

/// Written by systemd-timesyncd when it has set the clock in this boot (systemd-timesyncd.service(8)).
const TIMESYNCD_MARKER: &str = "/run/systemd/timesync/synchronized";
/// Command names of the services that keep time.
const SERVICES: [&str; 5] = ["chronyd", "ntpd", "systemd-timesyncd", "openntpd", "ptp4l"];

/// Reads the clock's state. `coordinator` is what delivery last learned of the offset; without it the offset is
/// not applicable.
pub fn read(cx: &SenseContext, coordinator: Option<Fact<ClockOffset>>) -> Fact<ClockFacts> {
    let service = service(cx);
    let facts = ClockFacts {
        source: Some(source(cx, service.value().map(String::as_str))),
        kernel: match kernel_clock() {
            Ok(clock) => Fact::known(clock, "adjtimex(2)", cx.now()),
            Err(e) => Fact::from_io(&e, "adjtimex(2)", cx.now()),
        },
        service,
        coordinator: coordinator
            .unwrap_or_else(|| Fact::not_applicable("no coordinator has answered yet", cx.now())),
    };
    Fact::known(facts, "adjtimex(2), /proc", cx.now())
}

/// The service that keeps time. timesyncd's marker comes first: it tells that the service did more than run.
fn service(cx: &SenseContext) -> Fact<String> {
    if cx.path(TIMESYNCD_MARKER).exists() {
        return Fact::known("systemd-timesyncd".into(), TIMESYNCD_MARKER, cx.now());
    }
    process::find(cx, &SERVICES).map(|p| {
        // The kernel cuts names to 15 bytes; give the full one back.
        SERVICES.iter().find(|s| s.starts_with(&p.name)).map_or(p.name.clone(), |s| (*s).to_owned())
    })
}

/// What the service says of where it has the time from.
fn source(cx: &SenseContext, service: Option<&str>) -> Fact<TimeSource> {
    let (asked, name) = match service {
        Some("chronyd") => (chrony::read(cx.now()), "chronyd at 127.0.0.1:323/udp"),
        Some("ntpd") => (ntpd::read(cx.now()), "ntpd at 127.0.0.1:123/udp"),
        Some("systemd-timesyncd") if process::find(cx, &["systemd-timesyncd"]).value().is_none() => {
            // Its marker outlives it.
            return Fact::not_applicable("systemd-timesyncd does not run", cx.now());
        }
        Some("systemd-timesyncd") if timesync::has_set_lately(cx) => {
            let why = "systemd-timesyncd has set the clock lately, and is asked for its server only while it has not";
            return Fact::not_applicable(why, cx.now());
        }
        Some("systemd-timesyncd") => (timesync::read(cx), "timedatectl show-timesync"),
        Some(other) => {
            return Fact::not_applicable(
                format!("{other} tells nobody where it has the time from"),
                cx.now(),
            );
        }
        None => return Fact::not_applicable("no time service was found", cx.now()),
    };
    match asked {
        Ok(source) => Fact::known(source, name, cx.now()),
        Err((cause, detail)) => Fact::unknown(cause, detail, name, cx.now()),
    }
}

/// `adjtimex(2)`, asking only.
fn kernel_clock() -> io::Result<KernelClock> {
    let (state, timex) = adjtimex()?;
    Ok(KernelClock {
        synchronized: timex.status & libc::STA_UNSYNC == 0 && state != libc::TIME_ERROR,
        estimated_error_us: timex.esterror,
        maximum_error_us: timex.maxerror,
    })
}

/// The clock state and the kernel's record of it; neither nix nor rustix offers this call.
#[allow(unsafe_code)] // One system call that fills a plain struct of integers.
fn adjtimex() -> io::Result<(libc::c_int, libc::timex)> {
    // SAFETY: all-zero is a valid `timex`, and `modes` = 0 makes the call read-only.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, exclusively borrowed `timex`.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 { Err(io::Error::last_os_error()) } else { Ok((state, timex)) }
}

#[cfg(test)]
mod tests {
    use super::super::prepared::Machine;
    use super::*;

    fn facts(machine: &Machine) -> ClockFacts {
        read(&machine.cx(), None).value().cloned().unwrap()
    }

    #[test]
    fn the_marker_names_timesyncd() {
        let machine = Machine::new();
        machine.write(TIMESYNCD_MARKER, "");
        assert_eq!(facts(&machine).service.value().map(String::as_str), Some("systemd-timesyncd"));
    }

    #[test]
    fn a_running_service_is_named_in_full() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "10.0 1.0");
        machine.write("/proc/1/stat", "1 (init) S 0 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 1 1 1");
        assert!(matches!(facts(&machine).service, Fact::Absent { .. }));
        machine.write("/proc/8/comm", "systemd-timesyn\n");
        machine.write("/proc/8/stat", "8 (systemd-timesyn) S 0 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 1 1 1");
        assert_eq!(facts(&machine).service.value().map(String::as_str), Some("systemd-timesyncd"));
    }

    #[test]
    fn the_kernel_answers_here() {
        let facts = facts(&Machine::new());
        let kernel = facts.kernel.value().unwrap_or_else(|| panic!("{:?}", facts.kernel));
        assert!(kernel.maximum_error_us >= 0);
        assert!(matches!(facts.coordinator, Fact::NotApplicable { .. }));
    }
}
