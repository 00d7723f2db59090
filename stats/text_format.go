package stats

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"
)

// ContentType is that of what Resource and Cadvisor write: the text format of Prometheus,
// which each scraper takes. It is written line by line: collectors of client_golang would
// keep every series of a scrape in memory, several times.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// metricsWriter writes families of series. The first error stays.
type metricsWriter struct {
	w    *bufio.Writer
	line []byte
}

func newMetricsWriter(w io.Writer) *metricsWriter {
	return &metricsWriter{w: bufio.NewWriterSize(w, 32<<10), line: make([]byte, 0, 512)}
}

// Kinds of metrics.
const (
	counter = "counter"
	gauge   = "gauge"
)

// family begins one; all its series follow.
func (t *metricsWriter) family(name, kind, help string) {
	_, _ = t.w.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n") // see flush
}

// series writes one. Each of labels is name="value" or several of them with commas, made by
// label, or empty. A zero time is none.
func (t *metricsWriter) series(name string, value float64, at time.Time, labels ...string) {
	b := append(t.line[:0], name...)
	open := false
	for _, l := range labels {
		if l == "" {
			continue
		}
		if !open {
			b, open = append(b, '{'), true
		} else {
			b = append(b, ',')
		}
		b = append(b, l...)
	}
	if open {
		b = append(b, '}')
	}
	b = append(b, ' ')
	if whole := int64(value); float64(whole) == value && whole > -1<<53 && whole < 1<<53 {
		b = strconv.AppendInt(b, whole, 10)
	} else {
		b = strconv.AppendFloat(b, value, 'g', -1, 64)
	}
	if !at.IsZero() {
		b = strconv.AppendInt(append(b, ' '), at.UnixMilli(), 10)
	}
	t.line = append(b, '\n')
	_, _ = t.w.Write(t.line) // see flush
}

// flush returns the first error of all writes.
func (t *metricsWriter) flush() error { return t.w.Flush() }

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// label formats pairs of names and values.
func label(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		b.WriteString(escape.Replace(pairs[i+1]))
		b.WriteByte('"')
	}
	return b.String()
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / float64(time.Second) }
