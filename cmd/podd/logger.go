package main

import (
	"io"
	"log/slog"
	"os"

	"k8s.io/klog/v2"

	"podd/config"
	"podd/systemd"
)

// newLogger returns the daemon's configured log, and a function that sets its verbosity.
// Libraries that log with klog or log write to it, too. If w is stderr and leads to the journal,
// lines have the journal's fields.
func newLogger(c *config.Config, w io.Writer) (log *slog.Logger, setVerbosity func(v int)) {
	var level slog.LevelVar
	level.Set(c.LogLevel)
	newHandler := func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) }
	if c.LogFormat == "json" {
		newHandler = func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) }
	}
	var h slog.Handler
	if stderr, ok := w.(*os.File); ok {
		h = systemd.NewJournalHandler(stderr, c.NodeName, newHandler, &level)
	}
	if h == nil {
		h = newHandler(w, &slog.HandlerOptions{Level: &level})
	}
	log = slog.New(h)
	slog.SetDefault(log)
	klog.SetSlogLogger(log.With("from", "klog"))
	return log, func(v int) { level.Set(config.LevelOf(v)) }
}
