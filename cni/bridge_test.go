package cni

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyABridgeThatPoddMadeIsRemoved: "podd runtime stop --bridge br0" deleted
// whatever had that name, and a start with it took the addresses of br0 away.
func TestOnlyABridgeThatPoddMadeIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making networks needs root")
	}
	for name, c := range map[string]struct {
		before  string // what the node has before podd's start
		between string // and what happens between start and stop
		refused string // why podd does not start; it is stopped all the same
		remark  string
		stays   bool
	}{
		"none was there":                        {},
		"podd died after it had made it":        {before: "ip link add br0 type bridge && ip link set br0 alias 'podd /srv/a'"},
		"somebody's without an address":         {before: "ip link add br0 type bridge", remark: "podd did not create it", stays: true},
		"an older podd's":                       {before: "ip link add br0 type bridge && ip addr add 10.205.0.1/24 dev br0", remark: "podd did not create it", stays: true},
		"somebody's with an address":            {before: "ip link add br0 type bridge && ip addr add 192.0.2.9/24 dev br0", refused: "192.0.2.9/24", remark: "podd did not create it", stays: true},
		"another podd's":                        {before: "ip link add br0 type bridge && ip link set br0 alias 'podd /srv/b'", refused: "another podd", remark: "another podd", stays: true},
		"no bridge":                             {before: "ip link add br0 type dummy || ip link add br0 type veth peer name br1", refused: "is not a bridge", remark: "podd did not create it", stays: true},
		"somebody made it anew in the meantime": {between: "ip link delete br0 && ip link add br0 type bridge", remark: "podd did not create it", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			node := filepath.Join(dir, "node")
			newNetNS(t, node)
			n, err := New(Config{
				Bridge: "br0", Owner: "/srv/a", PodCIDR: netip.MustParsePrefix("10.205.0.0/24"), BinDirs: []string{dir},
				ConfDir: filepath.Join(dir, "net.d"), LeaseDir: filepath.Join(dir, "leases"), CacheDir: filepath.Join(dir, "cache"),
			}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			inNetNS(t, node, func() error { return sh("true", c.before) })
			for range 2 {
				inNetNS(t, node, func() error { err = n.SetUp(t.Context()); return nil })
				if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("start: got %v, want %q", err, c.refused)
				}
			}
			inNetNS(t, node, func() error { return sh("true", c.between) })
			was := nodeSees(t, node, "ip addr show dev br0")
			var remark string
			inNetNS(t, node, func() (err error) { remark, err = n.TearDown(t.Context()); return err })
			if !strings.Contains(remark, c.remark) || (remark == "") != (c.remark == "") {
				t.Errorf("stop: got remark %q, want %q", remark, c.remark)
			}
			if is := nodeSees(t, node, "ip addr show dev br0"); c.stays && is != was || !c.stays && !strings.Contains(is, "does not exist") {
				t.Errorf("after stop: got\n%swant it there %t, as it was:\n%s", is, c.stays, was)
			}
		})
	}
}
