use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use super::*;
use crate::store::conformance::{self, transition};

fn open(folder: &Path) -> SqliteStore {
    let opened = SqliteStore::open(folder).expect("a store");
    assert_eq!(opened.set_aside, None);
    opened.store
}

/// Stores of their own under one folder that goes with the test.
fn stores(root: &tempfile::TempDir) -> impl AsyncFn() -> Arc<SqliteStore> {
    let root = root.path().to_owned();
    let count = Mutex::new(0);
    async move || {
        let mut count = count.lock().unwrap();
        *count += 1;
        Arc::new(open(&root.join(count.to_string())))
    }
}

#[tokio::test]
async fn is_a_store() {
    let root = tempfile::tempdir().unwrap();
    conformance::store(stores(&root)).await;
}

#[tokio::test]
async fn is_a_history() {
    let root = tempfile::tempdir().unwrap();
    conformance::history(stores(&root)).await;
}

fn origin() -> Origin {
    Origin { uid: "u".into(), name: "n".into() }
}

async fn fill(store: &SqliteStore, documents: usize) {
    for n in 0..documents {
        let value = Bytes::from(format!("{n:05}").repeat(100));
        store.put(&format!("nodes/{n:04}"), value, Expect::Absent).await.unwrap();
    }
    let events: Vec<_> = (1..=documents as u64).map(|n| transition(n, "some event")).collect();
    store.append(&origin(), Uuid::nil(), &events, Timestamp::from_seconds(1)).await.unwrap();
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 10).await;
    let revision = store.put("last", Bytes::from_static(b"v"), Expect::Any).await.unwrap();
    store.delete("last", Expect::Any).await.unwrap();
    store.close().await;
    assert_eq!(store.put("late", Bytes::new(), Expect::Any).await, Err(StoreError::Closed));
    drop(store);

    let store = open(folder.path());
    assert_eq!(store.list("", "", 100).await.unwrap().items.len(), 10);
    assert_eq!(store.acknowledged("u", Uuid::nil()).await, Ok(10));
    // Revisions go on where they were, and a watcher of before is told to list again.
    assert!(store.put("next", Bytes::new(), Expect::Any).await.unwrap() > revision + 1);
    assert!(matches!(store.watch("", revision).await, Err(StoreError::Compacted { .. })));
}

#[tokio::test]
async fn files_are_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("made/on/the/way");
    let store = open(&state);
    fill(&store, 1).await;
    let backup = state.join("backup.db");
    store.backup(&backup).await.unwrap();
    for entry in fs::read_dir(&state).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
    }
}

#[tokio::test]
async fn a_second_coordinator_is_told_who_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let error = SqliteStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    store.close().await;
    open(folder.path());
}

#[tokio::test]
async fn a_later_schema_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).close().await;
    let path = folder.path().join(FILE_NAME);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    drop(db);
    let error = SqliteStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::NewerSchema { found, .. } if found == SCHEMA_VERSION + 1), "{error}");
    assert!(path.exists());
}

#[tokio::test]
async fn no_database_at_all_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    fs::write(&path, "this is no database, and long enough that SQLite looks at its header".repeat(40))
        .unwrap();
    let opened = SqliteStore::open(folder.path()).unwrap();
    let aside = opened.set_aside.expect("set aside");
    assert!(aside.path.exists() && aside.path.to_string_lossy().contains(".corrupt-"), "{aside:?}");
    opened.store.put("k", Bytes::new(), Expect::Absent).await.unwrap();
    opened.store.close().await;
    open(folder.path());
}

#[tokio::test]
async fn what_can_be_read_of_a_damaged_file_is_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 400).await;
    store.close().await;
    drop(store);
    let path = folder.path().join(FILE_NAME);
    {
        // Everything into the one file, then a wound in its middle.
        let db = rusqlite::Connection::open(&path).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    let size = fs::metadata(&path).unwrap().len();
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(size / 2 / 4096 * 4096)).unwrap();
    file.write_all(&[0xa5; 3 * 4096]).unwrap();
    drop(file);

    let opened = SqliteStore::open(folder.path()).unwrap();
    let aside = opened.set_aside.expect("set aside");
    assert!(aside.documents + aside.events > 300, "{aside:?}");
    let kept = crate::store::list_all(&opened.store, "nodes/").await.unwrap().0;
    assert_eq!(kept.len() as u64, aside.documents);
    for entry in &kept {
        let n = entry.key.trim_start_matches("nodes/");
        assert_eq!(entry.value, Bytes::from(format!("0{n}").repeat(100)), "{}", entry.key);
    }
    let revision = opened.store.put("new", Bytes::new(), Expect::Absent).await.unwrap();
    assert!(kept.iter().all(|e| e.revision < revision));
    opened.store.close().await;
    open(folder.path());
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = SqliteStore::open(&file.join("state")).unwrap_err();
    assert!(error.to_string().contains("file/state"), "{error}");
}

#[tokio::test]
async fn a_backup_while_writers_go_on_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(folder.path()));
    fill(&store, 50).await;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0..200 {
                store.put(&format!("more/{n}"), Bytes::from(vec![1; 2000]), Expect::Absent).await.unwrap();
            }
        })
    };
    let copy = folder.path().join("copy");
    let file = copy.join(FILE_NAME);
    fs::create_dir(&copy).unwrap();
    store.backup(&file).await.unwrap();
    assert!(matches!(store.backup(&file).await, Err(BackupError::Exists { .. })));
    let missing = folder.path().join("nowhere/copy.db");
    assert!(store.backup(&missing).await.unwrap_err().to_string().contains("nowhere"));
    writer.await.unwrap();

    let copied = open(&copy);
    assert_eq!(copied.list("nodes/", "", 100).await.unwrap().items.len(), 50);
    assert_eq!(copied.acknowledged("u", Uuid::nil()).await, Ok(50));
    assert_eq!(
        fs::read_dir(&copy)
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().to_string_lossy().contains("partial"))
            .count(),
        0
    );
}

#[tokio::test]
async fn a_full_disk_is_said_and_nothing_of_the_group_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 1).await;
    store.close().await;
    drop(store);
    // SQLite's own limit on pages fails a write just as a full disk does.
    let store = open(folder.path());
    store.writer.limit_pages(40).await;
    let mut failed = None;
    for n in 0..200 {
        match store.put(&format!("big/{n}"), Bytes::from(vec![1; 8000]), Expect::Absent).await {
            Ok(_) => assert_eq!(failed, None, "no write after the disk was full"),
            Err(e) => {
                failed.get_or_insert((n, e));
            }
        }
    }
    let (first, error) = failed.expect("the disk is full at some time");
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    let kept = store.list("big/", "", 1000).await.unwrap().items.len();
    assert_eq!(kept, first, "what was answered is there, what failed is not");
    // Room again: it goes on by itself.
    store.writer.limit_pages(100_000).await;
    store.put("after", Bytes::new(), Expect::Absent).await.unwrap();
}

#[tokio::test]
async fn migrations_lead_from_nothing_to_now_in_steps() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).close().await;
    let db = rusqlite::Connection::open(folder.path().join(FILE_NAME)).unwrap();
    assert_eq!(schema::version(&db).unwrap(), SCHEMA_VERSION);
    let mode: String = db.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_wound_anywhere_stops_no_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 60).await;
    store.close().await;
    drop(store);
    let path = folder.path().join(FILE_NAME);
    {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    let whole = fs::read(&path).unwrap();
    let pages = whole.len() / 4096;
    for page in (0..pages).step_by(pages / 12 + 1).chain([pages - 1]) {
        for wound in [0x00, 0xff] {
            let mut wounded = whole.clone();
            wounded[page * 4096..][..4096].fill(wound);
            let state = tempfile::tempdir().unwrap();
            fs::write(state.path().join(FILE_NAME), &wounded).unwrap();
            let opened = SqliteStore::open(state.path()).unwrap_or_else(|e| panic!("page {page}: {e}"));
            opened.store.put("new", Bytes::new(), Expect::Any).await.unwrap();
            opened.store.list("", "", 1000).await.unwrap();
            opened.store.close().await;
        }
    }
    // Cut short, as a copy that was interrupted.
    for size in [100, 4096, whole.len() / 2, whole.len() - 4096] {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(FILE_NAME), &whole[..size]).unwrap();
        let opened = SqliteStore::open(state.path()).unwrap_or_else(|e| panic!("{size} bytes: {e}"));
        assert!(opened.set_aside.is_some(), "{size} bytes");
        opened.store.put("new", Bytes::new(), Expect::Any).await.unwrap();
        opened.store.close().await;
    }
}

#[tokio::test]
async fn one_event_that_cannot_be_read_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 3).await;
    let db = rusqlite::Connection::open(folder.path().join(FILE_NAME)).unwrap();
    db.execute("UPDATE events SET transition = '{' WHERE sequence = 2", []).unwrap();
    let events = store.events(&EventFilter::default(), 0, 10).await.unwrap();
    assert_eq!(events.iter().map(|e| e.sequence).collect::<Vec<_>>(), [1, 3]);
}
