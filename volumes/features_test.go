package volumes

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/features"
)

// withGate switches a feature gate on.
func withGate(t *testing.T, gate features.Gate) func(*Options) {
	t.Helper()
	set, wrong := features.New(map[string]bool{string(gate): true})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return func(o *Options) { o.Features = set }
}

func TestTheModeOfAnEmptyDirWhereItsGateIsOn(t *testing.T) {
	ask := func(n int32) func(*v1.EmptyDirVolumeSource) {
		return func(s *v1.EmptyDirVolumeSource) { s.Mode = &n }
	}
	group := int64(2000)
	const dir, sticky, setgid = fs.ModeDir, fs.ModeSticky, fs.ModeSetgid
	for name, c := range map[string]struct {
		volume v1.Volume
		group  *int64
		off    bool
		want   fs.FileMode
	}{
		"disk":                        {empty("v", ask(0o750)), nil, false, dir | 0o750},
		"disk, sticky":                {empty("v", ask(0o1777)), nil, false, dir | sticky | 0o777},
		"disk, nothing":               {empty("v", ask(0)), nil, false, dir},
		"disk, with an fsGroup":       {empty("v", ask(0o700)), &group, false, dir | setgid | 0o770},
		"memory":                      {empty("v", memory, ask(0o750)), nil, false, dir | 0o750},
		"memory, sticky":              {empty("v", memory, ask(0o1755)), nil, false, dir | sticky | 0o755},
		"memory, with an fsGroup":     {empty("v", memory, ask(0o700)), &group, false, dir | setgid | 0o770},
		"memory, no mode":             {empty("v", memory), nil, false, dir | sticky | 0o777},
		"memory, no mode, an fsGroup": {empty("v", memory), &group, false, dir | sticky | setgid | 0o777},
		"disk, gate off":              {empty("v", ask(0o750)), nil, true, dir | 0o777},
		"memory, gate off":            {empty("v", memory, ask(0o750)), nil, true, dir | sticky | 0o777},
	} {
		t.Run(name, func(t *testing.T) {
			old := syscall.Umask(0o077)
			defer syscall.Umask(old)
			m := newMounter(t)
			if !c.off {
				m = newMounter(t, withGate(t, features.EmptyDirVolumeMode))
			}
			p := aPod("u1", c.volume)
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.group}
			mustSetUp(t, m, p)
			mustHaveMode(t, volumeDir(m, "u1", "empty-dir", "v"), c.want)
		})
	}
}

func TestTheUsersOfProjectedFilesWhereTheirGateIsOn(t *testing.T) {
	one, two := int64(1001), int64(1002)
	items := []v1.KeyToPath{{Key: "a", Path: "a", User: &two}, {Key: "b", Path: "sub/b"}}
	fields := fromPod("d", "a", "metadata.name", "b", "metadata.namespace")
	fields.DownwardAPI.DefaultUser, fields.DownwardAPI.Items[0].User = &one, &two
	all := projected("p", partConfigMap("app", items...), partSecret("key", v1.KeyToPath{Key: "c", Path: "c", User: &two}), partPod("d", "metadata.name"),
		v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", User: &two}}, v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token1"}})
	all.Projected.DefaultUser = &one
	pod := func() *v1.Pod {
		return aPod("u1",
			fromConfigMap("c", "app", func(s *v1.ConfigMapVolumeSource) { s.DefaultUser = &one }),
			fromConfigMap("i", "app", func(s *v1.ConfigMapVolumeSource) { s.DefaultUser, s.Items = &one, items }),
			fromSecret("s", "key", func(s *v1.SecretVolumeSource) { s.DefaultUser, s.DefaultMode = &one, mode(0o400) }),
			fromSecret("t", "key", func(s *v1.SecretVolumeSource) { s.Items = []v1.KeyToPath{{Key: "c", Path: "c", User: &two}} }),
			fields, all)
	}
	owners := map[string]uint32{
		"configmap/c/a": 1001, "configmap/c/b": 1001, "configmap/i/a": 1002, "configmap/i/sub/b": 1001, "secret/s/c": 1001, "secret/t/c": 1002,
		"downward-api/d/a": 1002, "downward-api/d/b": 1001, "projected/p/a": 1002, "projected/p/sub/b": 1001, "projected/p/c": 1002, "projected/p/d": 1001,
		"projected/p/token": 1002, "projected/p/token1": 1001,
	}
	withTokens := func(o *Options) { o.Tokens = tokenFor("t1") }
	store := newStore(aConfigMap("app", "a", "1", "b", "2"), aSecret("key", "c", "3"))
	for name, c := range map[string]struct {
		mounter *Mounter
		group   *int64
		on      bool
	}{
		"on":                  {newMounter(t, store.into, withTokens, withGate(t, features.AtomicWriteVolumeUserFields)), nil, true},
		"on, with an fsGroup": {newMounter(t, store.into, withTokens, withGate(t, features.AtomicWriteVolumeUserFields)), &two, true},
		"off":                 {newMounter(t, store.into, withTokens), nil, false},
	} {
		p := pod()
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.group}
		mustSetUp(t, c.mounter, p)
		for path, owner := range owners {
			if !c.on {
				owner = 0
			}
			part := strings.SplitN(path, "/", 3) // kind, volume, file
			info, err := os.Stat(filepath.Join(volumeDir(c.mounter, "u1", part[0], part[1]), part[2]))
			if err != nil {
				t.Fatal(err)
			}
			st := info.Sys().(*syscall.Stat_t)
			if st.Uid != owner || c.group != nil && int64(st.Gid) != *c.group {
				t.Errorf("%s: %s: got %d:%d, want %d", name, path, st.Uid, st.Gid, owner)
			}
		}
	}
	// The owner may read a file that nobody else may, and the group may, too.
	on := newMounter(t, store.into, withTokens, withGate(t, features.AtomicWriteVolumeUserFields))
	p := pod()
	mustSetUp(t, on, p)
	mustHaveMode(t, volumeDir(on, "u1", "secret", "s")+"/c", 0o400)
	mustHaveMode(t, volumeDir(on, "u1", "projected", "p")+"/token", 0o600)
}
