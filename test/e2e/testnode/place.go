package testnode

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxPlaces bounds how many nodes may exist on a machine at once.
const maxPlaces = 16

// Place is a number and everything that follows from it. Two processes never
// hold the same place: it is locked with flock until Release.
type Place struct {
	Number int
	// Dir holds everything of the place; it is short, because socket paths
	// may have 108 bytes only.
	Dir string
	// Bridge is the name of the network device and of the CNI network,
	// CgroupRoot the absolute path of the cgroup below every controller.
	Bridge, CgroupRoot string
	Subnet             netip.Prefix
	// Port is the first of ten TCP ports that belong to the place.
	Port int

	lock *os.File
}

// Claim takes the first free place below base and ends what an earlier holder of
// the place left running when it was killed, wherever its own base was: that still
// has the place's ports, addresses and cgroups. What such a holder left below the
// same base is the caller's to sweep (Node.Sweep).
func Claim(base string) (*Place, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of test nodes: %w", err)
	}
	for i := range maxPlaces {
		lock, err := lockPlace(i)
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		name := "pddt" + strconv.Itoa(i)
		p := &Place{
			Number:     i,
			Dir:        filepath.Join(base, strconv.Itoa(i)),
			Bridge:     name,
			CgroupRoot: "/podd-test" + strconv.Itoa(i),
			Subnet:     netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + i), 0, 0}), 16),
			Port:       21000 + 10*i,
			lock:       lock,
		}
		if err := p.succeed(); err != nil {
			return nil, errors.Join(fmt.Errorf("take over test node %d: %w", i, err), lock.Close())
		}
		return p, nil
	}
	return nil, fmt.Errorf("all %d test nodes of this machine are in use", maxPlaces)
}

// lockPlace opens and locks the file of a place; nil when another has the lock.
func lockPlace(i int) (*os.File, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf(".podd-testnode-%d.lock", i))
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of test node %d: %w", i, err)
	}
	// Its text says what to clear away: that of another user is not believed.
	var stat unix.Stat_t
	err = unix.Fstat(int(lock.Fd()), &stat)
	if err == nil && int(stat.Uid) != os.Geteuid() {
		err = fmt.Errorf("%s belongs to user %d; remove it", path, stat.Uid)
	}
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, lock.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock test node %d: %w", i, err), lock.Close())
	}
	return lock, nil
}

// succeed reads from the lock which directory the last holder of the place had,
// sweeps it where that is another one, and writes this one's.
func (p *Place) succeed() error {
	last, err := io.ReadAll(io.NewSectionReader(p.lock, 0, 4096)) // PATH_MAX
	if err != nil {
		return err
	}
	if dir := string(last); dir != "" && dir != p.Dir {
		old := *p
		old.Dir = dir
		if err := old.Sweep(); err != nil {
			return fmt.Errorf("sweep what the last holder left in %s: %w", dir, err)
		}
	}
	if err := p.lock.Truncate(0); err != nil {
		return err
	}
	_, err = p.lock.WriteAt([]byte(p.Dir), 0)
	return err
}

// Root and State are what --root-dir and --state-dir say, to the runtime and to
// podd alike; ConfigDir is the administrator's directory of the runtime.
func (p *Place) Root() string      { return filepath.Join(p.Dir, "root") }
func (p *Place) State() string     { return filepath.Join(p.Dir, "run") }
func (p *Place) ConfigDir() string { return filepath.Join(p.Dir, "etc") }

// Release gives the place back, to be called when nothing of it runs any more. The
// directory stays for Sweep to remove.
func (p *Place) Release() error { return errors.Join(p.lock.Truncate(0), p.lock.Close()) }
