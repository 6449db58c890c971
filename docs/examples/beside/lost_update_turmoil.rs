//! The account that loses an update, as a test of turmoil (0.7).
//!
//! There is no broker that could take part: a server of a few lines stands for it.  As a file in
//! `tests/` of a crate that has `turmoil = "0.7"` and tokio's `io-util` and `time` for its tests, `cargo test`
//! runs it; the first test fails, the second one passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use turmoil::net::{TcpListener, TcpStream};
use turmoil::Builder;

const DEPOSITS: [i64; 5] = [10; 5];

/// Balances, each with the position up to which deposits are in it.
type Balances = Arc<Mutex<Vec<(i64, usize)>>>;

/// What outlives the account, such as a database.
type Notes = Arc<Mutex<HashMap<&'static str, usize>>>;

async fn serve(balances: Balances) -> turmoil::Result {
    let listener = TcpListener::bind(("0.0.0.0", 7000)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let balances = balances.clone();
        tokio::spawn(async move { answer(stream, balances).await });
    }
}

async fn answer(stream: TcpStream, balances: Balances) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let words: Vec<i64> = line.split(' ').skip(1).map(|one| one.trim().parse().unwrap()).collect();
        let text = match line.split_whitespace().next() {
            Some("read") => format!("{}\n", DEPOSITS[words[0] as usize]),
            Some("add") => {
                balances.lock().unwrap().push((words[0], words[1] as usize));
                "0\n".to_string()
            }
            _ => {
                let (balance, position) = *balances.lock().unwrap().last().unwrap_or(&(0, 0));
                format!("{balance} {position}\n")
            }
        };
        stream.write_all(text.as_bytes()).await?;
        line.clear();
    }
    Ok(())
}

async fn ask(stream: &mut BufReader<TcpStream>, text: String) -> std::io::Result<Vec<i64>> {
    stream.write_all(text.as_bytes()).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.split_whitespace().map(|one| one.parse().unwrap()).collect())
}

async fn keep_account(notes: Notes, is_right: bool) -> turmoil::Result {
    let mut log = BufReader::new(TcpStream::connect("log:7000").await?);
    let last = ask(&mut log, "last\n".into()).await?;
    let (mut balance, mut position) = (last[0], last[1] as usize);
    if !is_right {
        position = *notes.lock().unwrap().get("position").unwrap_or(&0);
    }
    while position < DEPOSITS.len() {
        let deposit = ask(&mut log, format!("read {position}\n")).await?[0];
        position += 1;
        notes.lock().unwrap().insert("position", position); // too early, unless it isn't used
        tokio::time::sleep(Duration::from_millis(1)).await; // a crash comes between two ticks only
        balance += deposit;
        ask(&mut log, format!("add {balance} {position}\n")).await?;
    }
    Ok(())
}

/// What the account has in the end, if it crashes after so many ticks of a millisecond.
fn story(crash_at: usize, is_right: bool) -> i64 {
    let mut sim = Builder::new()
        .rng_seed(1)
        .max_message_latency(Duration::from_millis(5))
        .build();
    let balances = Balances::default();
    let notes = Notes::default();
    let of_log = balances.clone();
    sim.host("log", move || serve(of_log.clone()));
    sim.host("account", move || keep_account(notes.clone(), is_right));
    for _ in 0..crash_at {
        sim.step().unwrap();
    }
    sim.crash("account");
    sim.bounce("account");
    for _ in 0..500 {
        sim.step().unwrap();
    }
    let last = *balances.lock().unwrap().last().unwrap();
    last.0
}

#[test]
fn every_deposit_counts() {
    for crash_at in 0..100 {
        assert_eq!(story(crash_at, false), 50, "crash after {crash_at} ms");
    }
}

#[test]
fn every_deposit_counts_with_position_and_balance_together() {
    for crash_at in 0..100 {
        assert_eq!(story(crash_at, true), 50, "crash after {crash_at} ms");
    }
}
