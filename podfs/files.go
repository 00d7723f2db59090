package podfs

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// Files creates and removes the files of pods. Create it with New.
type Files struct {
	dirs Dirs
	log  *slog.Logger

	mu            sync.Mutex
	containerLogs map[string]containerLog // by container ID; guarded by mu
	listings      uint64                  // how many listings were started; guarded by mu
}

// New returns Files in these directories, and touches none of them.
func New(dirs Dirs, log *slog.Logger) *Files {
	return &Files{dirs: dirs.WithDefaults(), log: log, containerLogs: map[string]containerLog{}}
}

func removeIfExists(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
