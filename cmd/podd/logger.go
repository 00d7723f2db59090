package main

import (
	"io"
	"log/slog"

	"k8s.io/klog/v2"

	"podd/config"
)

// newLogger returns the daemon's configured log, and a function that sets its verbosity.
// Libraries that log with klog or log write to it, too.
func newLogger(c *config.Config, w io.Writer) (log *slog.Logger, setVerbosity func(v int)) {
	var level slog.LevelVar
	level.Set(c.LogLevel)
	options := &slog.HandlerOptions{Level: &level}
	var h slog.Handler = slog.NewTextHandler(w, options)
	if c.LogFormat == "json" {
		h = slog.NewJSONHandler(w, options)
	}
	log = slog.New(h)
	slog.SetDefault(log)
	klog.SetSlogLogger(log.With("from", "klog"))
	return log, func(v int) { level.Set(config.LevelOf(v)) }
}
