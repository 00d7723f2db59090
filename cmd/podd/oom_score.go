package main

import (
	"log/slog"
	"os"
	"strconv"

	"podd/bundle"
)

// lowerOOMScore makes podd one of the last processes that the OOM killer selects. If the
// machine does not permit that, it is no error.
func lowerOOMScore(score int, log *slog.Logger) {
	if score < 0 && !bundle.MayLowerOOMScore() {
		log.Info("cannot lower podd's OOM score: this machine does not permit it", "wanted", score)
		return
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(score)), 0o644); err != nil {
		log.Warn("cannot set podd's OOM score", "wanted", score, "error", err)
	}
}
