package podfs

import "testing"

// TestTheLayout is a contract: people, log shippers and an older podd's pods go by it.
func TestTheLayout(t *testing.T) {
	d := Dirs{}.WithDefaults()
	for got, want := range map[string]string{
		d.Pods():                       "/var/lib/podd/pods",
		d.Pod("u"):                     "/var/lib/podd/pods/u",
		d.Hosts("u"):                   "/var/lib/podd/pods/u/etc-hosts",
		d.UserNamespace("u"):           "/var/lib/podd/pods/u/userns",
		d.Container("u", "c"):          "/var/lib/podd/pods/u/containers/c",
		d.Volume("u", "k.io/e-d", "v"): "/var/lib/podd/pods/u/volumes/k.io~e-d/v",
		d.SubPath("u", "v", "c", 3):    "/var/lib/podd/pods/u/volume-subpaths/v/c/3",
		d.Logs("ns", "web", "u"):       "/var/log/pods/ns_web_u",
		ContainerLogPath("app", 3):     "app/3.log",
		d.ContainerLogs:                "/var/log/containers",
		Dirs{Root: "/r"}.Pod("u"):      "/r/pods/u",
		SubPathsIn("/var/lib/podd/x"):  "/var/lib/podd/x/volume-subpaths",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for path, want := range map[string]string{
		"/var/lib/podd/pods/u/volumes/k.io~e-d/v":          "v",
		"/var/lib/podd/pods/u/volume-subpaths/v/c/3":       "v",
		"/var/lib/podd/pods/u/volumes":                     "",
		"/var/lib/podd/pods/other/volumes/k.io~e-d/v/file": "",
	} {
		if got := d.VolumeOf("u", path); got != want {
			t.Errorf("%s: got volume %q, want %q", path, got, want)
		}
	}
}
