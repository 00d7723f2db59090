package systemd

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// journalSocket is where the journal takes entries (systemd.io/JOURNAL_NATIVE_PROTOCOL).
const journalSocket = "/run/systemd/journal/socket"

// NewJournalHandler returns a log handler that writes to the journal, if that is where stderr
// leads to; else nil. An entry's MESSAGE is the line that newText makes, without the time, which
// the journal has. What the line says of a pod is in fields, too: PODD_POD, PODD_NAMESPACE,
// PODD_CONTAINER, PODD_UID and PODD_REASON. A static pod's name in its manifest is a second
// PODD_POD: its own name ends in that of this node.
//
// A line that the journal does not take (it is larger than a datagram, or the journal is gone)
// goes to stderr as without this handler.
func NewJournalHandler(stderr io.Writer, nodeName string, newText func(io.Writer, *slog.HandlerOptions) slog.Handler, level slog.Leveler) slog.Handler {
	if isJournal, err := journal.StderrIsJournalStream(); err != nil || !isJournal {
		return nil
	}
	conn, err := newJournalConn(journalSocket)
	if err != nil {
		return nil
	}
	return newJournalHandler(conn, stderr, nodeName, newText, level)
}

// journalConn sends a datagram to the journal with each Write. It is not connected: the journal's
// socket may be made anew.
type journalConn struct {
	*net.UnixConn
	to *net.UnixAddr
}

func newJournalConn(path string) (*journalConn, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"}) // the kernel chooses the address
	return &journalConn{conn, &net.UnixAddr{Name: path, Net: "unixgram"}}, err
}

func (c *journalConn) Write(datagram []byte) (int, error) { return c.WriteToUnix(datagram, c.to) }

func newJournalHandler(conn, stderr io.Writer, nodeName string, newText func(io.Writer, *slog.HandlerOptions) slog.Handler, level slog.Leveler) slog.Handler {
	out := &journalOutput{conn: conn, stderr: stderr, suffix: "-" + nodeName}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	return &journalHandler{out: out, text: newText(&out.line, options)}
}

// journalHandler is a slog.Handler.
type journalHandler struct {
	out *journalOutput
	// text writes to out.line.
	text slog.Handler
	// fields are those of attributes that all records have.
	fields []journalField
	// grouped handlers have names of their own, which are no fields.
	grouped bool
}

// journalOutput is what handlers share. Its mutex serialises entries, as those of the standard
// handlers serialise lines.
type journalOutput struct {
	conn, stderr io.Writer
	// suffix is what a static pod's name has behind the name in its manifest.
	suffix string

	mu    sync.Mutex
	line  bytes.Buffer
	entry bytes.Buffer
}

type journalField struct{ name, value string }

func (h *journalHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.text.Enabled(ctx, level)
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	fields := slices.Clip(h.fields)
	if !h.grouped {
		r.Attrs(func(a slog.Attr) bool {
			fields = h.out.appendFields(fields, a)
			return true
		})
	}
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.line.Reset()
	if err := h.text.Handle(ctx, r); err != nil {
		return err
	}
	return h.out.writeLocked(r.Level, fields)
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.text = h.text.WithAttrs(attrs)
	if !h.grouped {
		with.fields = slices.Clone(h.fields)
		for _, a := range attrs {
			with.fields = h.out.appendFields(with.fields, a)
		}
	}
	return &with
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.text, with.grouped = h.text.WithGroup(name), true
	return &with
}

// appendFields appends the fields of an attribute, if it is about a pod. A later field of a name
// is another value of it: a pod is given once.
func (o *journalOutput) appendFields(fields []journalField, a slog.Attr) []journalField {
	switch a.Key {
	case "pod":
		full := a.Value.Resolve().String()
		namespace, name, found := strings.Cut(full, "/")
		if !found {
			namespace, name = "", full
		}
		fields = append(fields, journalField{"PODD_POD", name})
		if own, static := strings.CutSuffix(name, o.suffix); static && own != "" {
			fields = append(fields, journalField{"PODD_POD", own})
		}
		if namespace != "" {
			fields = append(fields, journalField{"PODD_NAMESPACE", namespace})
		}
	case "container", "uid", "reason":
		fields = append(fields, journalField{"PODD_" + strings.ToUpper(a.Key), a.Value.Resolve().String()})
	}
	return fields
}

// writeLocked sends the line with its fields.
func (o *journalOutput) writeLocked(level slog.Level, fields []journalField) error {
	o.entry.Reset()
	o.appendLocked("MESSAGE", strings.TrimSuffix(o.line.String(), "\n"))
	o.appendLocked("PRIORITY", priority(level))
	o.appendLocked("SYSLOG_IDENTIFIER", "podd")
	for _, f := range fields {
		o.appendLocked(f.name, f.value)
	}
	if _, err := o.conn.Write(o.entry.Bytes()); err == nil {
		return nil
	}
	_, err := o.stderr.Write(o.line.Bytes())
	return err
}

// appendLocked adds a field. A value of several lines comes with its length.
func (o *journalOutput) appendLocked(name, value string) {
	o.entry.WriteString(name)
	if !strings.Contains(value, "\n") {
		o.entry.WriteString("=" + value + "\n")
		return
	}
	o.entry.WriteByte('\n')
	o.entry.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
	o.entry.WriteString(value + "\n")
}

// priority returns syslog's number of a level.
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "3"
	case level >= slog.LevelWarn:
		return "4"
	case level >= slog.LevelInfo:
		return "6"
	}
	return "7"
}
