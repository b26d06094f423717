//! Checks that the view of a Swarm is mounted so that workers see its changes.

use k8s_openapi::api::core::v1::{PodSpec, Volume, VolumeMount, VolumeProjection};
use swarm_client::api::Swarm;
use swarm_spec::spec::ProtocolSpec;

use super::Misfit;
use crate::plain::refresh_order::RefreshTerms;

/// Number of mounts of a container that the cache keeps.
const MOUNTS_MAX: usize = 16;
/// Number of sources of a volume that the cache keeps.
const SOURCES_MAX: usize = 16;
/// The longest path that the cache keeps.
const PATH_MAX: usize = 256;

/// The finding about a container that mounts a file of the view by a `subPath`, which no kubelet
/// updates. Pods that are replaced for every change may mount it so.
pub(super) fn misfit(swarm: &Swarm, pod: &PodSpec) -> Option<Misfit> {
    if swarm.protocol() == ProtocolSpec::Session || RefreshTerms::of(swarm).replaces() {
        return None;
    }
    let map = swarm.view_config_map();
    let volumes = pod.volumes.iter().flatten().filter(|it| maps_of(it).any(|name| name == map));
    let names: Vec<_> = volumes.map(|volume| volume.name.as_str()).collect();
    let mounts = pod.containers.iter().flat_map(|container| {
        container.volume_mounts.iter().flatten().map(move |mount| (&container.name, mount))
    });
    let mut stale =
        mounts.filter(|(_, mount)| names.contains(&mount.name.as_str()) && is_part(mount));
    let (container, mount) = stale.next()?;
    let part = mount.sub_path.as_deref().or(mount.sub_path_expr.as_deref()).unwrap_or_default();
    let dir = match mount.mount_path.rsplit_once('/') {
        Some((dir, _)) if !dir.is_empty() => dir,
        _ => "/app/config",
    };
    let message = format!(
        "container `{container}` mounts `{part}` of ConfigMap `{map}`, which is the view, with \
         subPath at `{}`: a kubelet never updates such a mount, so the worker keeps its first \
         jobs. Remove subPath, and mount volume `{}` as a directory at `{dir}`",
        mount.mount_path, mount.name
    );
    Some(Misfit { reason: "ViewNeverUpdated", message })
}

fn is_part(mount: &VolumeMount) -> bool {
    let has_text = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
    has_text(&mount.sub_path) || has_text(&mount.sub_path_expr)
}

/// The ConfigMaps in a volume.
fn maps_of(volume: &Volume) -> impl Iterator<Item = &str> {
    let projected = volume.projected.iter().flat_map(|it| it.sources.iter().flatten());
    let projected = projected.filter_map(|source| source.config_map.as_ref());
    let projected = projected.map(|it| it.name.as_str());
    volume.config_map.iter().map(|it| it.name.as_str()).chain(projected)
}

/// The ConfigMap volumes among `volumes`, without other fields.
pub(super) fn of_config_maps(volumes: Option<Vec<Volume>>) -> Vec<Volume> {
    let of_maps = volumes.into_iter().flatten().filter_map(|volume| {
        let of_map = volume.config_map.map(|mut map| {
            map.items = None;
            map
        });
        let projected = volume.projected.map(|mut projected| {
            let sources = projected.sources.into_iter().flatten();
            let of_maps = sources.filter_map(|source| source.config_map).take(SOURCES_MAX);
            let of_maps = of_maps.map(|mut map| {
                map.items = None;
                VolumeProjection { config_map: Some(map), ..VolumeProjection::default() }
            });
            projected.sources = Some(of_maps.collect());
            projected
        });
        let projected = projected.filter(|it| it.sources.iter().flatten().next().is_some());
        let is_any = of_map.is_some() || projected.is_some();
        is_any.then_some(Volume {
            name: volume.name,
            config_map: of_map,
            projected,
            ..Volume::default()
        })
    });
    of_maps.collect()
}

/// The mounts of parts of `volumes`; `None` if there are none.
pub(super) fn kept(
    mounts: Option<Vec<VolumeMount>>,
    volumes: &[Volume],
) -> Option<Vec<VolumeMount>> {
    let fits = |mount: &VolumeMount| {
        let paths =
            [Some(&mount.mount_path), mount.sub_path.as_ref(), mount.sub_path_expr.as_ref()];
        paths.into_iter().flatten().all(|path| path.len() <= PATH_MAX)
    };
    let parts = mounts.into_iter().flatten().filter(|mount| is_part(mount) && fits(mount));
    let of_maps = parts.filter(|mount| volumes.iter().any(|volume| volume.name == mount.name));
    let kept: Vec<_> = of_maps.take(MOUNTS_MAX).collect();
    (!kept.is_empty()).then_some(kept)
}
