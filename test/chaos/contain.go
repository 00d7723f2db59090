package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// What containers see at /out, and what this program keeps there: locks, one for
// each container of a name; runs, a line for each start; saw, which version of each
// volume a container sees; violations, in words.
const (
	dirLocks       = "locks"
	dirRuns        = "runs"
	dirSaw         = "saw"
	fileViolations = "violations"
)

// contain is a container's life. It returns the exit code.
func contain(args []string) int {
	f := flag.NewFlagSet("contain", flag.ExitOnError)
	name := f.String("name", "", "POD.CONTAINER: the lock that is held")
	life := f.String("life", "", "the life of the pod that this belongs to")
	lasts := f.Duration("for", 0, "how long it runs; 0 until it is told to end")
	code := f.Int("code", 0, "how it exits after that")
	failFirst := f.Bool("fail-first", false, "exit 1 the first time")
	linger := f.Duration("linger", 0, "how long it takes to end")
	deaf := f.Bool("deaf", false, "ignore SIGTERM")
	empty := f.String("empty", "", "a directory that nobody but this life has written to")
	needs := f.String("needs", "", "files that must be there, with commas between")
	leaves := f.String("leaves", "", "a file to make")
	listen := f.String("listen", "", "an address to answer HTTP at")
	mounts := f.String("mounts", "", "a directory to mount a tmpfs at")
	var v values
	f.StringVar(&v.volumes, "values", "", "volumes that are seen whole, with commas between")
	f.StringVar(&v.memory, "memory", "", "volumes that are on no disk, with commas between")
	f.StringVar(&v.keys, "keys", "", "files that are keys of a whole version, with commas between")
	f.DurationVar(&v.every, "every", 20*time.Millisecond, "how often the volumes are read")
	_ = f.Parse(args)

	lock, err := hold("/out", *name, *life)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	defer lock.Close()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	first := !exists("/out/" + dirRuns + "/" + *life + "." + *name)
	note("/out/"+dirRuns+"/"+*life+"."+*name, "run")
	if *empty != "" {
		onlyOwn("/out", *empty, *name, *life)
	}
	for _, file := range split(*needs) {
		if !exists(file) {
			note("/out/"+fileViolations, *name+" of "+*life+" began before "+file+" was there")
		}
	}
	if *mounts != "" {
		if err := mountInside(*mounts); err != nil {
			note("/out/"+fileViolations, *name+" of "+*life+": "+err.Error())
		}
	}
	go v.watch("/out", *name, *life, nil)
	if *leaves != "" {
		note(*leaves, *life)
	}
	if *listen != "" {
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(*listen, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		}()
	}
	if *failFirst && first {
		return 1
	}
	var over <-chan time.Time
	if *lasts > 0 {
		over = time.After(*lasts)
	}
	for {
		select {
		case <-over:
			return *code
		case <-term:
			if !*deaf {
				time.Sleep(*linger)
				return 0
			}
		}
	}
}

// hold takes a lock that dies with the process, however it ends.
func hold(out, name, life string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(out, dirLocks, name), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		note(filepath.Join(out, fileViolations), name+" of "+life+" began while another ran")
	}
	return f, nil
}

// onlyOwn finds what another life of the pod has left.
func onlyOwn(out, dir, name, life string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		note(filepath.Join(out, fileViolations), err.Error())
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), life+".") && !strings.HasPrefix(e.Name(), canaryPrefix) {
			note(filepath.Join(out, fileViolations), name+" of "+life+" found "+e.Name()+" in its emptyDir")
		}
	}
	note(filepath.Join(dir, life+"."+name), "here")
}

// mountInside mounts a file system of the container's own, which others see where the
// volume's mounts propagate.
func mountInside(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", dir, err)
	}
	return os.WriteFile(filepath.Join(dir, "inside"), []byte("of the container\n"), 0o666)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// note adds a line to a file.
func note(path, line string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}
