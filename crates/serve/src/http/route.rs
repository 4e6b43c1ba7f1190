//! Parses the paths of URLs: gitprotocol-http's, git-http-backend's, and a few of our own.

use weir_repo::is_lfs_oid;
use weir_upload::Service;

/// The part of a repository that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `info/refs`, for a service, or plain for dumb clients.
    InfoRefs(Option<Service>),
    /// `info/refs` for an unknown service.
    UnknownService,
    /// `git-upload-pack` and the like.
    Rpc(Service),
    /// `HEAD`
    Head,
    /// `objects/info/packs`
    InfoPacks,
    /// `objects/info/alternates` and `objects/info/http-alternates`
    Info(&'static str),
    /// `objects/xx/yyy...`, by the path below `objects`.
    Loose(String),
    /// `objects/pack/pack-xxx.pack` and `.idx`, by the name of the file.
    Pack(String),
    /// `weir/clone`: the description of a whole clone.
    Clone,
    /// `weir/clone-xxx.pack`, `.idx`, `.bundle`: by the checksum of the pack.
    ClonePart(String, ClonePart),
    /// `weir/trees-xxx`: the trees of a commit, by its id.
    Trees(String),
    /// `weir/bundles`: a list of bundles, one for each update.
    Bundles,
    /// `weir/body-xxx.bundle`: one of these bundles, by the name of its pack.
    BodyBundle(String),
    /// `info/lfs/objects/batch`: the URLs of LFS objects.
    LfsBatch,
    /// `info/lfs/objects/<oid>`: one LFS object.
    LfsObject(String),
    /// `NAME.tar`: the archive itself.
    Archive,
}

/// A file of a whole clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClonePart {
    Pack,
    Index,
    Bundle,
}

/// Returns the repository's name and what is asked of it; `None` if the URL is not one of ours.
pub(crate) fn route<'p>(path: &'p str, query: &str) -> Option<(&'p str, Route)> {
    let fixed = |suffix: &str| path.strip_suffix(suffix).filter(|name| !name.is_empty());
    if let Some(name) = fixed("/info/refs") {
        let service = query.split('&').find_map(|p| p.strip_prefix("service="));
        let route = match service {
            None => Route::InfoRefs(None),
            Some("git-upload-pack") => Route::InfoRefs(Some(Service::UploadPack)),
            Some("git-receive-pack") => Route::InfoRefs(Some(Service::ReceivePack)),
            Some("git-upload-archive") => Route::InfoRefs(Some(Service::UploadArchive)),
            Some(_) => Route::UnknownService,
        };
        return Some((name, route));
    }
    let table = [
        ("/git-upload-pack", Route::Rpc(Service::UploadPack)),
        ("/git-receive-pack", Route::Rpc(Service::ReceivePack)),
        ("/git-upload-archive", Route::Rpc(Service::UploadArchive)),
        ("/HEAD", Route::Head),
        ("/objects/info/packs", Route::InfoPacks),
        ("/objects/info/alternates", Route::Info("alternates")),
        ("/objects/info/http-alternates", Route::Info("http-alternates")),
        ("/info/lfs/objects/batch", Route::LfsBatch),
        ("/weir/clone", Route::Clone),
        ("/weir/bundles", Route::Bundles),
        (".tar", Route::Archive),
    ];
    if let Some((name, route)) = table.into_iter().find_map(|(suffix, route)| Some((fixed(suffix)?, route))) {
        return Some((name, route));
    }
    let (rest, file) = path.rsplit_once('/')?;
    if let Some(name) = rest.strip_suffix("/weir") {
        if let Some(stem) = file.strip_prefix("body-") {
            let stem = stem.strip_suffix(".bundle").filter(|stem| is_oid(stem))?;
            return Some((name, Route::BodyBundle(stem.to_owned())));
        }
        if let Some(commit) = file.strip_prefix("trees-") {
            return is_oid(commit).then(|| (name, Route::Trees(commit.to_owned())));
        }
        let (stem, extension) = file.strip_prefix("clone-")?.split_once('.')?;
        let part = match extension {
            "pack" => ClonePart::Pack,
            "idx" => ClonePart::Index,
            "bundle" => ClonePart::Bundle,
            _ => return None,
        };
        return is_oid(stem).then(|| (name, Route::ClonePart(stem.to_owned(), part)));
    }
    if let Some(name) = rest.strip_suffix("/info/lfs/objects") {
        return is_lfs_oid(file).then(|| (name, Route::LfsObject(file.to_owned())));
    }
    if let Some(name) = rest.strip_suffix("/objects/pack") {
        let (stem, extension) = file.strip_prefix("pack-")?.split_once('.')?;
        return (is_oid(stem) && matches!(extension, "pack" | "idx"))
            .then(|| (name, Route::Pack(file.to_owned())));
    }
    let (before, folder) = rest.rsplit_once('/')?;
    let name = before.strip_suffix("/objects")?;
    is_oid(&format!("{folder}{file}")).then_some(())?;
    (folder.len() == 2).then(|| (name, Route::Loose(format!("{folder}/{file}"))))
}

fn is_oid(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let oid = "0123456789abcdef0123456789abcdef01234567";
        let is =
            |path: &str, expected: Route| assert_eq!(route(path, ""), Some(("/a/b.git", expected)), "{path}");
        is("/a/b.git/info/refs", Route::InfoRefs(None));
        is("/a/b.git/HEAD", Route::Head);
        is("/a/b.git/git-upload-pack", Route::Rpc(Service::UploadPack));
        is(&format!("/a/b.git/objects/pack/pack-{oid}.idx"), Route::Pack(format!("pack-{oid}.idx")));
        is(&format!("/a/b.git/objects/01/{}", &oid[2..]), Route::Loose(format!("01/{}", &oid[2..])));
        is(&format!("/a/b.git/weir/clone-{oid}.bundle"), Route::ClonePart(oid.to_owned(), ClonePart::Bundle));
        is("/a/b.git/weir/bundles", Route::Bundles);
        is(&format!("/a/b.git/weir/trees-{oid}"), Route::Trees(oid.to_owned()));
        is(&format!("/a/b.git/weir/body-{oid}.bundle"), Route::BodyBundle(oid.to_owned()));
        is("/a/b.git.tar", Route::Archive);
        is("/a/b.git/info/lfs/objects/batch", Route::LfsBatch);
        let sha256 = "ab".repeat(32);
        is(&format!("/a/b.git/info/lfs/objects/{sha256}"), Route::LfsObject(sha256.clone()));
        assert_eq!(route(&format!("/a/info/lfs/objects/{}", &sha256[1..]), ""), None);
        for bad in [
            "",
            "/",
            "/info/refs",
            "/a",
            "/a/objects/pack/../x",
            "/a/objects/pack/pack-00.pack",
            "/a/objects/01/23",
            "/a/weir/clone-x.pack",
            "/a/weir/body-x.bundle",
            "/a/weir/trees-x",
            &format!("/a/objects/pack/pack-{oid}.keep"),
            &format!("/a/objects/012/{}", &oid[3..]),
        ] {
            assert_eq!(route(bad, ""), None, "{bad}");
        }
        assert_eq!(route("/a/info/refs", "service=git-x").unwrap().1, Route::UnknownService);
        assert_eq!(
            route("/a/info/refs", "x=1&service=git-receive-pack").unwrap().1,
            Route::InfoRefs(Some(Service::ReceivePack))
        );
    }
}
