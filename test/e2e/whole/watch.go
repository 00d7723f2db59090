package whole

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// pause is between two reads of Watch, which share two processors with what is tested.
const pause = time.Millisecond

// Watch reads a volume again and again until over, and tells in the directory out:
// NAME.half has what was no version, or an older one than before; NAME.MARK is made as
// soon as a version with a mark is read, and NAME.marked has then the version, how many
// were seen, and after how many reads.
func Watch(out, name, volume string, over <-chan os.Signal) error {
	var last Seen
	versions := 0
	for reads := 1; ; reads++ {
		select {
		case <-over:
			return nil
		case <-time.After(pause):
		}
		seen, err := Read(volume)
		if err == nil && seen.Version < last.Version {
			err = fmt.Errorf("%d came after %d", seen.Version, last.Version)
		}
		if err != nil {
			if err := os.WriteFile(filepath.Join(out, name+".half"), []byte(err.Error()), 0o644); err != nil {
				return err
			}
		}
		if err != nil || seen == last {
			continue
		}
		last, versions = seen, versions+1
		if seen.Mark == "" {
			continue
		}
		text := fmt.Sprintf("%d %d %d", seen.Version, versions, reads)
		if err := os.WriteFile(filepath.Join(out, name+".marked"), []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name+"."+seen.Mark), nil, 0o644); err != nil {
			return err
		}
	}
}
