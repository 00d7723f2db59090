package testnode

import (
	"errors"
	"fmt"
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

// Claim takes the first free place below base. What an earlier holder that was
// killed left behind is the caller's to sweep (Node.Sweep).
func Claim(base string) (*Place, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of test nodes: %w", err)
	}
	for i := range maxPlaces {
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf(".podd-testnode-%d.lock", i)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the lock of test node %d: %w", i, err)
		}
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			_ = lock.Close()
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock test node %d: %w", i, err), lock.Close())
		}
		name := "pddt" + strconv.Itoa(i)
		return &Place{
			Number:     i,
			Dir:        filepath.Join(base, strconv.Itoa(i)),
			Bridge:     name,
			CgroupRoot: "/podd-test" + strconv.Itoa(i),
			Subnet:     netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + i), 0, 0}), 16),
			Port:       21000 + 10*i,
			lock:       lock,
		}, nil
	}
	return nil, fmt.Errorf("all %d test nodes of this machine are in use", maxPlaces)
}

// Root and State are what --root-dir and --state-dir say, to the runtime and to
// podd alike; ConfigDir is the administrator's directory of the runtime.
func (p *Place) Root() string      { return filepath.Join(p.Dir, "root") }
func (p *Place) State() string     { return filepath.Join(p.Dir, "run") }
func (p *Place) ConfigDir() string { return filepath.Join(p.Dir, "etc") }

// Release gives the place back. The directory stays for Sweep to remove.
func (p *Place) Release() error { return p.lock.Close() }
