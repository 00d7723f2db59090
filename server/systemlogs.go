package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// systemLogs is the kubelet's /logs/: the files of the log directory, and with LogQuery the
// journal. Links are followed within the directory (containers/ has absolute ones, to pods/).
// Nothing outside of it is served. A pod that has the directory as its volume could otherwise
// make a link that leads out.
func (s *Server) systemLogs(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(s.config.Kubelet.LogDir)
	if err != nil {
		http.Error(w, "cannot open the log directory: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer root.Close()
	file := strings.TrimPrefix(r.URL.Path, "/logs")
	if s.config.Kubelet.LogQuery {
		query, err := parseLogQuery(r.URL.Query())
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case query == nil: // a file, or the list of them
		case strings.Trim(file, "/") != "":
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
			return
		default:
			if err := query.check(root); err != nil {
				http.Error(w, err.Error(), http.StatusNotAcceptable)
				return
			}
			if len(query.files) == 0 {
				s.queryLogs(w, r, query, root)
				return
			}
			file = "/" + strings.ReplaceAll(query.files[0], `\`, "/")
		}
	}
	if file == "" { // keeps the links of the listing relative to the directory
		http.Redirect(w, r, "/logs/", http.StatusMovedPermanently)
		return
	}
	shown := r.Clone(r.Context())
	shown.URL.Path, shown.URL.RawPath = file, ""
	http.FileServerFS(plainFiles{root}).ServeHTTP(&deadlineWriter{ResponseWriter: w, s: s}, shown)
}

// plainFiles are the regular files and directories below a root. Opening anything else may
// block (a FIFO) or make the host do something (a device).
type plainFiles struct{ root *os.Root }

// Open implements fs.FS.
func (p plainFiles) Open(name string) (fs.File, error) {
	f, err := p.open(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// The root follows no absolute link, wherever it leads. Open the target through the
		// root, too: whoever changes links meanwhile gains nothing.
		if target, ok := p.target(name); ok {
			f, err = p.open(target)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil { // also for a link that leads out of the root
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = errors.New("neither a file nor a directory")
	}
	if err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f, nil
}

func (p plainFiles) open(name string) (*os.File, error) {
	return p.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// target returns where the links of a name lead, if that is below the root.
func (p plainFiles) target(name string) (string, bool) {
	dir, err := filepath.EvalSymlinks(p.root.Name())
	if err != nil {
		return "", false
	}
	path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(dir, path)
	return rel, err == nil && filepath.IsLocal(rel)
}
