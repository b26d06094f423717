//! A screen of our own on the terminal, which gets back what it showed before, however we end.

use std::io::{self, Write, stdout};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use futures::StreamExt as _;
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

/// Whether a screen is open. Whoever writes to the terminal holds it, so that nothing is drawn on
/// what was given back.
static IS_OPEN: Mutex<bool> = Mutex::new(false);

/// The whole terminal, to draw on. It is given back when this is dropped, and before a panic is
/// told. There is one at a time.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Pen>>,
    events: EventStream,
}

/// What came from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Somebody pressed a key.
    Key(Key),
    /// It has another size now, so everything is to be drawn again.
    Resized,
}

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter, a digit or a sign.
    Char(char),
    /// Ctrl-C, which is no signal while a screen is open.
    Interrupt,
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the beginning.
    Home,
    /// To the end.
    End,
}

impl Screen {
    /// Takes hold of the terminal that is standard output.
    ///
    /// # Errors
    ///
    /// If it cannot be had; it is as it was before.
    pub fn open() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let told = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                restore();
                told(panic);
            }));
        });
        enable_raw_mode()?;
        *IS_OPEN.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let opened = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(Pen::default())));
        match opened {
            Ok(terminal) => Ok(Self { terminal, events: EventStream::new() }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws everything; only what differs from the last time is written, in one piece.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Waits for what comes from the terminal next; `None` if it is gone.
    pub async fn input(&mut self) -> Option<Input> {
        loop {
            match self.events.next().await? {
                Ok(Event::Resize(..)) => return Some(Input::Resized),
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    if let Some(key) = known(key.code, is_control) {
                        return Some(Input::Key(key));
                    }
                }
                // Keys that go up again, and what was never asked for: mouse, focus, paste.
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn known(code: KeyCode, is_control: bool) -> Option<Key> {
    match code {
        KeyCode::Char('c') if is_control => Some(Key::Interrupt),
        KeyCode::Char(_) if is_control => None,
        KeyCode::Char(sign) => Some(Key::Char(sign)),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        _ => None,
    }
}

/// Gives the terminal back, once.
fn restore() {
    let mut is_open = IS_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_open) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Gathers what is drawn and writes it when all of it is there.
#[derive(Default)]
struct Pen {
    drawn: Vec<u8>,
}

impl Write for Pen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.drawn.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing that can panic runs while this is held, or the panic could not be told.
        let is_open = IS_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let drawn = std::mem::take(&mut self.drawn);
        if !*is_open || drawn.is_empty() {
            return Ok(());
        }
        let mut stdout = stdout().lock();
        stdout.write_all(&drawn)?;
        stdout.flush()
    }
}
