//! A full-screen view on the terminal, which is restored however the process ends.

use std::io::{self, Write, stdout};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use futures::StreamExt as _;
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

/// Whether a screen is open. Every write to the terminal holds the lock, so that nothing is drawn
/// after the terminal was restored.
static IS_OPEN: Mutex<bool> = Mutex::new(false);

/// The whole terminal. It is restored when this is dropped, and before a panic message is printed. At
/// most one exists.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Pen>>,
    /// `None` while the shell has the terminal.
    events: Option<EventStream>,
}

/// An input from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A pressed key.
    Key(Key),
    /// The size changed, so everything must be drawn again.
    Resized,
}

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A letter, a digit or a symbol.
    Char(char),
    /// Ctrl-C, which does not send a signal while a screen is open.
    Interrupt,
    /// Ctrl-L.
    Redraw,
    /// Ctrl-Z, which does not send a signal either.
    Suspend,
    Enter,
    Esc,
    Backspace,
    Tab,
    /// Tab with the shift key.
    BackTab,
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
    /// Opens a screen on the terminal that is standard output.
    ///
    /// # Errors
    ///
    /// Opening failed; the terminal is restored.
    pub(super) fn open() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print_panic = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                restore();
                print_panic(panic);
            }));
        });
        Ok(Self { terminal: take()?, events: Some(EventStream::new()) })
    }

    /// Returns the terminal to the shell, until [`resume`](Self::resume).
    pub(super) fn leave(&mut self) {
        // Further keys are for other programs.
        self.events = None;
        restore();
    }

    /// Leaves the terminal with a text on it, until [`resume`](Self::resume). After Enter, keys are
    /// read again.
    ///
    /// # Errors
    ///
    /// The terminal is lost.
    pub(super) fn leave_for(&mut self, text: &str) -> io::Result<()> {
        restore();
        self.events.get_or_insert_with(EventStream::new);
        let mut stdout = stdout().lock();
        write!(stdout, "{text}-- Enter: back to the screen --")?;
        stdout.flush()
    }

    /// Takes the terminal again.
    ///
    /// # Errors
    ///
    /// Taking it failed; the terminal is restored.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        self.terminal = take()?;
        self.events.get_or_insert_with(EventStream::new);
        Ok(())
    }

    /// Draws the whole screen. Only the difference from the last frame is written, in one write.
    ///
    /// # Errors
    ///
    /// The terminal is lost.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Clears the terminal; the next frame is written completely.
    ///
    /// # Errors
    ///
    /// The terminal is lost.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // The next frame is compared with an empty screen. `Terminal::clear` would query the cursor's
        // position and wait for the answer.
        self.terminal = Terminal::new(CrosstermBackend::new(Pen::default()))?;
        execute!(self.terminal.backend_mut(), Clear(ClearType::All))
    }

    /// Waits for the next input; `None` if the terminal is lost.
    pub(super) async fn input(&mut self) -> Option<Input> {
        let Some(events) = &mut self.events else { return std::future::pending().await };
        loop {
            match events.next().await? {
                Ok(Event::Resize(..)) => return Some(Input::Resized),
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    if let Some(key) = known(key.code, is_control) {
                        return Some(Input::Key(key));
                    }
                }
                // Key releases, and events that were not requested: mouse, focus, paste.
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
        KeyCode::Char('l') if is_control => Some(Key::Redraw),
        KeyCode::Char('z') if is_control => Some(Key::Suspend),
        KeyCode::Char(_) if is_control => None,
        KeyCode::Char(sign) => Some(Key::Char(sign)),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Esc),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Tab => Some(Key::Tab),
        KeyCode::BackTab => Some(Key::BackTab),
        _ => None,
    }
}

/// Takes the whole terminal, and clears it.
fn take() -> io::Result<Terminal<CrosstermBackend<Pen>>> {
    enable_raw_mode()?;
    *IS_OPEN.lock().unwrap_or_else(PoisonError::into_inner) = true;
    // A killed program may have left the terminal in this mode, with its drawing.
    let taken = execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All), Hide)
        .and_then(|()| Terminal::new(CrosstermBackend::new(Pen::default())));
    if taken.is_err() {
        restore();
    }
    taken
}

/// Restores the terminal, once.
fn restore() {
    let mut is_open = IS_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_open) {
        // A lost terminal needs no restoring.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Buffers a frame, and writes it when it is complete.
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
        // The panic hook takes the lock, too, so code under the lock must not panic.
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
