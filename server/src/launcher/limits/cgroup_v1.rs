//! Cgroups of version 1: a hierarchy for each controller, with groups of the same names in each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::cgroup::{Counts, Hierarchy, PERIOD_MICROS, Setting, count, quota_micros};
use super::machine::Machine;
use super::{Controller, files};
use crate::model::Limits;

/// Makes the daemon's own group in each hierarchy where that can be done; says why for the others.
pub(super) fn set_up(machine: &Machine, name: &str) -> Result<Vec<Hierarchy>, String> {
    let mut hierarchies: Vec<Hierarchy> = Vec::new();
    let mut reasons = Vec::new();
    for controller in Controller::ALL {
        let Some(own) = machine.separate(controller.name()) else {
            continue;
        };
        let base = own.join(name);
        // Several controllers may share one hierarchy.
        if let Some(shared) = hierarchies.iter_mut().find(|shared| shared.base == base) {
            shared.controllers.insert(controller);
            continue;
        }
        match make(controller, &own, &base) {
            Ok(()) => hierarchies.push(Hierarchy { base, controllers: [controller].into() }),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    if hierarchies.is_empty() { Err(reasons.join("; ")) } else { Ok(hierarchies) }
}

fn make(controller: Controller, own: &Path, base: &Path) -> std::io::Result<()> {
    // Kernels before 5.11 bound groups one by one unless told otherwise. Where groups exist
    // already it cannot be changed any more; then it is as the machine wants it.
    if controller == Controller::Memory && files::text(&own.join(HIERARCHY)).trim() == "0" {
        let _ = files::write(&own.join(HIERARCHY), "1");
    }
    files::make_dir(base)
}

const HIERARCHY: &str = "memory.use_hierarchy";

/// What to write into the files of a workspace's group, in this order.
pub(super) fn settings(controllers: &BTreeSet<Controller>, limits: &Limits) -> Vec<Setting> {
    let or_none = |value: Option<u64>| value.map_or_else(|| "-1".to_owned(), |v| v.to_string());
    let mut settings = Vec::new();
    if controllers.contains(&Controller::Memory) {
        let memory = or_none(limits.memory);
        // Memory with swap is never less than memory. So it is lifted first, set last.
        settings.push(Setting::optional("memory.memsw.limit_in_bytes", "-1"));
        settings.push(Setting::required("memory.limit_in_bytes", memory.clone()));
        settings.push(Setting::optional("memory.memsw.limit_in_bytes", memory));
    }
    if controllers.contains(&Controller::Pids) {
        let processes = limits.processes.map_or_else(|| "max".to_owned(), |n| n.to_string());
        settings.push(Setting::required("pids.max", processes));
    }
    if controllers.contains(&Controller::Cpu) {
        let quota = or_none(limits.cpu_millis.map(quota_micros));
        settings.push(Setting::required("cpu.cfs_period_us", PERIOD_MICROS.to_string()));
        settings.push(Setting::required("cpu.cfs_quota_us", quota));
    }
    settings
}

/// What was counted in a launch's groups: here both counts belong to the group of the process.
pub(super) fn counts(launch: &[PathBuf]) -> Counts {
    let sum = |file: &str, key: &str| -> u64 {
        launch.iter().map(|dir| count(&files::text(&dir.join(file)), key)).sum()
    };
    Counts { oom_kills: sum("memory.oom_control", "oom_kill"), refused: sum("pids.events", "max") }
}
