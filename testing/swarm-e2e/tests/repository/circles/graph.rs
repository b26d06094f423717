//! The imports between the files of a crate, and the circles in them.
//!
//! A path counts as an import of the file that defines its item, also through re-exports. Imports
//! between a module and the modules below it do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::source::{Body, body};

/// Bounds the re-exports that a path is followed through, so that a circle of them ends.
const REEXPORTS_MAX: usize = 16;

/// A module of a crate, with or without a file of its own.
#[derive(Debug)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    body: Body,
}

/// The modules of one program or library, its root first.
#[derive(Debug, Default)]
struct Modules(Vec<Module>);

impl Modules {
    /// Reads the module in `file` and all modules that it declares. Its submodules have their files in `folder`.
    fn add(
        &mut self,
        sources: &BTreeMap<PathBuf, String>,
        (file, folder): (&Path, &Path),
        parent: Option<usize>,
        mut body: Body,
    ) -> usize {
        let own = self.0.len();
        let declared = std::mem::take(&mut body.modules);
        self.0.push(Module { file: file.to_owned(), parent, children: BTreeMap::new(), body });
        for module in declared {
            let below = folder.join(&module.name);
            let child = if let Some(inline) = module.inline {
                Some(self.add(sources, (file, &below), Some(own), inline))
            } else {
                let directory = file.parent().unwrap_or(Path::new(""));
                let named = module.path.map(|path| directory.join(path));
                let usual = [below.with_extension("rs"), below.join("mod.rs")];
                // A file outside of `src` is left out.
                let mut all = named.into_iter().chain(usual);
                all.find(|path| sources.contains_key(path)).map(|path| {
                    self.add(sources, (&path, &below), Some(own), self::body(&sources[&path]))
                })
            };
            if let Some(child) = child {
                self.0[own].children.insert(module.name, child);
            }
        }
        own
    }

    /// Returns the module that a path leads to, or that defines its item; `None` outside of the crate.
    fn find(&self, from: usize, path: &[String], fuel: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let mut found = match first.as_str() {
            "crate" => Named::Module(0),
            "self" => Named::Module(from),
            "super" => Named::Module(self.0[from].parent?),
            name => self.lookup(from, name, fuel)?,
        };
        for name in rest {
            found = match found {
                Named::Module(module) if name == "super" => Named::Module(self.0[module].parent?),
                // A name without a declaration here comes from a macro, or from another crate.
                Named::Module(module) => {
                    self.lookup(module, name, fuel).unwrap_or(Named::Item(module))
                }
                // The rest names an associated item, or a variant.
                Named::Item(_) => break,
            };
        }
        let (Named::Module(module) | Named::Item(module)) = found;
        Some(module)
    }

    /// Finds the meaning of a name in a module.
    fn lookup(&self, module: usize, name: &str, fuel: usize) -> Option<Named> {
        let fuel = fuel.checked_sub(1)?;
        let Module { children, body, .. } = &self.0[module];
        if let Some(child) = children.get(name) {
            return Some(Named::Module(*child));
        }
        if body.items.iter().any(|item| item == name) {
            return Some(Named::Item(module));
        }
        if let Some(by_name) = body.uses.iter().find(|used| used.name.as_deref() == Some(name)) {
            return self.named(module, &by_name.path, fuel);
        }
        let globs = body.uses.iter().filter(|used| used.name.is_none());
        globs
            .filter_map(|glob| self.find(module, &glob.path, fuel))
            .filter(|globbed| *globbed != module)
            .find_map(|globbed| self.lookup(globbed, name, fuel))
    }

    /// Finds the meaning of the path of a `use`.
    fn named(&self, from: usize, path: &[String], fuel: usize) -> Option<Named> {
        let module = self.find(from, path, fuel)?;
        let last = path.last().map(String::as_str).unwrap_or_default();
        let parent = self.0[module].parent;
        let is_module =
            parent.is_some_and(|parent| self.0[parent].children.get(last) == Some(&module));
        Some(if is_module || last == "crate" { Named::Module(module) } else { Named::Item(module) })
    }

    /// Whether the two modules are the same, or one is below the other.
    fn are_related(&self, one: usize, other: usize) -> bool {
        let is_below = |mut below: usize, above: usize| {
            loop {
                match self.0[below].parent {
                    _ if self.0[below].file == self.0[above].file => return true,
                    Some(parent) => below = parent,
                    None => return false,
                }
            }
        };
        is_below(one, other) || is_below(other, one)
    }
}

enum Named {
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

/// The imports of a crate: for each file the files it imports, and the paths that do so.
#[derive(Debug, Default)]
pub(crate) struct Imports(BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>);

impl Imports {
    /// The imports of the library and of the programs whose sources these are.
    pub(crate) fn of(sources: &BTreeMap<PathBuf, String>) -> Self {
        let mut imports = Self::default();
        let is_root = |path: &&PathBuf| {
            let is_program = path.parent() == Some(Path::new("bin"));
            is_program || **path == Path::new("lib.rs") || **path == Path::new("main.rs")
        };
        for root in sources.keys().filter(is_root) {
            let folder = root.parent().unwrap_or(Path::new(""));
            let mut modules = Modules::default();
            modules.add(sources, (root, folder), None, body(&sources[root]));
            imports.add(&modules);
        }
        imports
    }

    fn add(&mut self, modules: &Modules) {
        for (own, module) in modules.0.iter().enumerate() {
            let imported = self.0.entry(module.file.clone()).or_default();
            let uses = module.body.uses.iter().map(|used| &used.path);
            for path in uses.chain(&module.body.paths) {
                let found = modules.find(own, path, REEXPORTS_MAX);
                if let Some(found) = found.filter(|found| !modules.are_related(own, *found)) {
                    let file = modules.0[found].file.clone();
                    imported.entry(file).or_default().insert(path.join("::"));
                }
            }
        }
    }

    /// The files of the crate, by their paths below its sources.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// The files that a file imports, with the paths that do so.
    pub(crate) fn of_file(&self, file: impl AsRef<Path>) -> &BTreeMap<PathBuf, BTreeSet<String>> {
        &self.0[file.as_ref()]
    }

    /// The files that can be reached from one by imports.
    fn reached(&self, from: &Path) -> BTreeSet<&Path> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            for imported in self.0.get(file).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(imported.as_path()) {
                    next.push(imported);
                }
            }
        }
        reached
    }

    /// The circles: the largest sets of files in which each reaches each other.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<&Path>> {
        let reached: BTreeMap<_, _> =
            self.0.keys().map(|file| (file.as_path(), self.reached(file))).collect();
        let circle = |file: &Path| -> BTreeSet<&Path> {
            reached[file].iter().copied().filter(|other| reached[other].contains(file)).collect()
        };
        let circles: BTreeSet<_> = reached.keys().map(|file| circle(file)).collect();
        circles.into_iter().filter(|circle| !circle.is_empty()).collect()
    }

    /// A circle as text, with the imports that close it.
    pub(crate) fn described(&self, circle: &BTreeSet<&Path>) -> String {
        let mut text = format!("  circle of {} files\n", circle.len());
        for file in circle {
            for (imported, paths) in self.of_file(file) {
                if circle.contains(imported.as_path()) {
                    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
                    let (file, imported) = (file.display(), imported.display());
                    let _ = writeln!(text, "    {file} -> {imported} ({})", paths.join(", "));
                }
            }
        }
        text
    }
}
