package stats

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata anew")

// everything adds the files of a real cgroup that files leaves out; limited cgroups have a
// quota and a limit of memory.
func (m *machine) everything(rel string, limited bool) {
	at := "cgroup" + rel + "/"
	quota, limit, swap := "-1\n", "9223372036854771712\n", "9223372036854771712\n"
	most, cpu := "max\n", "max 100000\n"
	if limited {
		quota, limit, swap, most, cpu = "50000\n", "2097152\n", "3145728\n", "2097152\n", "50000 100000\n"
	}
	if m.v2 {
		m.file(at+"cpu.stat", "usage_usec 9000\nuser_usec 5000\nsystem_usec 4000\nnr_periods 7\nnr_throttled 2\nthrottled_usec 300\nnr_bursts 1\nburst_usec 20\n")
		m.file(at+"cpu.weight", "79\n")
		m.file(at+"cpu.max", cpu)
		m.file(at+"memory.max", most)
		m.file(at+"memory.min", "4096\n")
		m.file(at+"memory.peak", "123456\n")
		m.file(at+"memory.swap.current", "17\n")
		m.file(at+"memory.swap.max", most)
		m.file(at+"memory.stat", "anon 11\nfile 12\nkernel 13\nfile_mapped 14\nactive_file 15\ninactive_file 4\npgfault 16\npgmajfault 17\nfile_dirty 21\nfile_writeback 22\nworkingset_refault_anon 23\nworkingset_refault_file 24\npgscan 25\npgsteal 26\n")
		m.file(at+"memory.events", "low 0\nhigh 6\nmax 5\noom 1\noom_kill 3\n")
		m.file(at+"pids.current", "6\n")
		m.file(at+"pids.max", most)
		m.file(at+"cpu.pressure", "some avg10=0.10 avg60=0.20 avg300=0.30 total=4000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500\n")
		return
	}
	m.file(at+"cpuacct.stat", "user 7\nsystem 8\n")
	m.file(at+"cpu.stat", "nr_periods 7\nnr_throttled 2\nthrottled_time 300000\nnr_bursts 1\nburst_time 20000\n")
	m.file(at+"cpu.shares", "2048\n")
	m.file(at+"cpu.cfs_period_us", "100000\n")
	m.file(at+"cpu.cfs_quota_us", quota)
	m.file(at+"memory.limit_in_bytes", limit)
	m.file(at+"memory.memsw.limit_in_bytes", swap)
	m.file(at+"memory.soft_limit_in_bytes", "4096\n")
	m.file(at+"memory.max_usage_in_bytes", "123456\n")
	m.file(at+"memory.failcnt", "5\n")
	m.file(at+"memory.kmem.usage_in_bytes", "13\n")
	m.file(at+"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
	m.file(at+"memory.stat", "pgfault 1\npgmajfault 2\ntotal_pgfault 16\ntotal_pgmajfault 17\ntotal_cache 12\ntotal_rss 11\ntotal_mapped_file 14\ntotal_swap 17\ntotal_active_file 15\ntotal_inactive_file 4\n")
	m.file(at+"pids.current", "6\n")
	m.file(at+"pids.max", most)
	if limited { // the others have no devices
		m.file(at+"blkio.throttle.io_service_bytes_recursive", "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\n8:16 Read 4\nTotal 7\n")
		m.file(at+"blkio.throttle.io_serviced_recursive", "8:0 Read 3\n8:0 Write 4\n8:16 Read 5\nTotal 12\n")
	} else {
		m.file(at+"blkio.throttle.io_service_bytes_recursive", "Total 0\n")
		m.file(at+"blkio.throttle.io_serviced_recursive", "Total 0\n")
	}
}

// TestTheTextOfCadvisorMetrics is that of testdata, but for what differs by machine and time.
func TestTheTextOfCadvisorMetrics(t *testing.T) {
	stamps := regexp.MustCompile(`(?m) \d{13}$|^(container_last_seen|container_start_time_seconds)(\{.*\}) .*$`)
	each(t, func(t *testing.T, v2 bool) {
		m := newMachine(t, v2)
		for i, g := range m.groups {
			m.everything(g.Path, i%2 == 1)
		}
		var out bytes.Buffer
		c := m.collector()
		for range 2 { // the second scrape may use what the first has learned
			out.Reset()
			if err := c.Cadvisor(t.Context(), &out); err != nil {
				t.Fatal(err)
			}
		}
		disk := label("device", c.cfg.Kernel.DeviceOf(m.dir))
		var kept strings.Builder
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "machine_") || strings.HasPrefix(line, "cadvisor_version_info") {
				continue
			}
			for _, name := range []string{"usage_bytes", "limit_bytes", "inodes_free", "inodes_total"} {
				if strings.HasPrefix(line, "container_fs_"+name) {
					line = strings.ReplaceAll(line, disk, `device="disk"`)
				}
			}
			kept.WriteString(line)
		}
		got := stamps.ReplaceAllString(kept.String(), "$1$2")
		name := "testdata/cadvisor-v1.txt"
		if v2 {
			name = "testdata/cadvisor-v2.txt"
		}
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got == string(want) {
			return
		}
		had, has := strings.Split(string(want), "\n"), strings.Split(got, "\n")
		for i := range min(len(had), len(has)) {
			if had[i] != has[i] {
				t.Fatalf("line %d: got\n%s\nwant\n%s", i+1, has[i], had[i])
			}
		}
		t.Fatalf("got %d lines, want %d", len(has), len(had))
	})
}
