//! The stores on files keep the same contract as those on the API server, which a story tells.

use std::fs;

use anyhow::Context as _;
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_adapters_host::view::FileViewStore;
use swarm_core::ports::LedgerStore;
use swarm_e2e::contract;

#[tokio::test]
async fn the_ledger_file_keeps_the_contract() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let open =
        || -> Box<dyn LedgerStore> { Box::new(FileLedgerStore::open(folder.path()).unwrap()) };
    contract::ledger_store(&open).await
}

#[tokio::test]
async fn the_view_file_keeps_the_contract() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let views = FileViewStore::open(folder.path())?;
    let file = folder.path().join("view/config.yml");
    contract::view_store(&views, || async {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        // Every write is a new file that takes the name.
        let mark = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&file)?);
        Ok((text, mark.to_string()))
    })
    .await
}
