package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/server"
)

// Routes of the socket.
const (
	podsPath    = "/podd/v1/pods"
	eventsPath  = "/podd/v1/events"
	objectsPath = "/podd/v1/objects"
	volumesPath = "/podd/v1/volumes"
	inspectPath = "/podd/v1/inspect"
	retryPath   = "/retry"

	imagesPath       = "/podd/v1/images"
	removeImagesPath = "/podd/v1/images/remove"

	restartPath = "/podd/v1/restart"
)

// client queries the daemon over its socket.
type client struct {
	socket string
	http   *http.Client
}

func newClient(stateDir string) *client {
	c := &client{socket: strings.TrimSuffix(stateDir, "/") + "/podd.sock"}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: 5 * time.Second}
			return d.DialContext(ctx, "unix", c.socket)
		},
		ResponseHeaderTimeout: 10 * time.Second,
	}}
	return c
}

// pods calls each with the node's pods: once, or with watch after every change, until ctx ends
// or each returns an error.
func (c *client) pods(ctx context.Context, watch bool, each func(server.Listing) error) error {
	return c.get(ctx, podsPath, watching(url.Values{}, watch), decoded(each))
}

// listPods returns the node's pods.
func (c *client) listPods(ctx context.Context) (server.Listing, error) {
	var l server.Listing
	err := c.get(ctx, podsPath, url.Values{}, func(decode func(any) error) error { return decode(&l) })
	return l, err
}

// events calls each with the events of a pod, or all events if name is empty:
// once, or with watch after every change, until ctx ends or each returns an
// error.
func (c *client) events(ctx context.Context, name podName, watch bool, each func(v1.EventList) error) error {
	return c.get(ctx, eventsPath, watching(name.query(), watch), decoded(each))
}

// listEvents returns the events of a pod.
func (c *client) listEvents(ctx context.Context, name podName) ([]v1.Event, error) {
	list := v1.EventList{Items: []v1.Event{}}
	err := c.get(ctx, eventsPath, name.query(), func(decode func(any) error) error { return decode(&list) })
	return list.Items, err
}

// objects returns the node's ConfigMaps and Secrets, without their values.
func (c *client) objects(ctx context.Context) (all []server.ObjectInfo, err error) {
	err = c.get(ctx, objectsPath, url.Values{}, func(decode func(any) error) error { return decode(&all) })
	return all, err
}

// volumes returns the host locations of a pod's volumes.
func (c *client) volumes(ctx context.Context, uid pod.UID) ([]server.Volume, error) {
	var answer server.Volumes
	err := c.get(ctx, volumesPath, url.Values{"uid": {string(uid)}}, func(decode func(any) error) error { return decode(&answer) })
	return answer.Volumes, err
}

// retry requests a retry of pods: ?pod=namespace/name, repeatable, or ?all,
// optionally with ?namespace.
func (c *client) retry(ctx context.Context, query url.Values) (server.Retried, error) {
	var answer server.Retried
	err := c.post(ctx, retryPath, query, &answer)
	return answer, err
}

// restart requests a restart of a pod (namespace/name), or of one of its containers.
func (c *client) restart(ctx context.Context, pod, container string) error {
	return c.post(ctx, restartPath, url.Values{"pod": {pod}, "container": {container}}, &server.Restarted{})
}

func watching(query url.Values, watch bool) url.Values {
	if watch {
		query.Set("watch", "")
	}
	return query
}

// decoded adapts an each for responses of one type to the each of get.
func decoded[T any](each func(T) error) func(func(any) error) error {
	return func(decode func(any) error) error {
		var answer T
		if err := decode(&answer); err != nil {
			return err
		}
		return each(answer)
	}
}

// post requests a change, and decodes the response into v.
func (c *client) post(ctx context.Context, path string, query url.Values, v any) error {
	resp, err := c.doOK(ctx, http.MethodPost, path, query)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("read the daemon's response: %w", err)
	}
	return nil
}

// do sends a request and returns the response, whatever its status. The caller closes its body.
func (c *client) do(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://podd"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	return resp, nil
}

// doOK sends a request and returns a successful response. The caller closes its body.
func (c *client) doOK(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	resp, err := c.do(ctx, method, path, query)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))                                                                                // for the error message
	if resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusNotFound && strings.HasPrefix(string(body), "no image ") { // a sentence for the operator
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return nil, fmt.Errorf("request %s from the daemon: %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
}

// get reads one response, or with watch one after the other, until ctx ends or each returns an
// error. decode decodes the next response into its argument.
func (c *client) get(ctx context.Context, path string, query url.Values, each func(decode func(any) error) error) error {
	watch := query.Has("watch")
	resp, err := c.doOK(ctx, http.MethodGet, path, query)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	d := json.NewDecoder(resp.Body)
	for {
		var decodeErr error
		err := each(func(v any) error {
			decodeErr = d.Decode(v)
			return decodeErr
		})
		switch {
		case ctx.Err() != nil && watch:
			return nil // the user interrupted the watch
		case ctx.Err() != nil:
			return errInterrupted
		case decodeErr != nil && watch:
			return &ExitError{ExitUnavailable, fmt.Errorf("the daemon at %s has stopped", c.socket)}
		case decodeErr != nil:
			return fmt.Errorf("read the daemon's response: %w", decodeErr)
		case err != nil || !watch:
			return err
		}
	}
}

// explain turns an error of the connection into advice for the user.
func (c *client) explain(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("podd is not running: there is no %s. Start it with `systemctl start podd` or `podd run`; if it runs with another --state-dir, give the same here", c.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("podd is not running: nothing listens on %s, which a killed podd left behind. Start it with `systemctl start podd` or `podd run`", c.socket)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("only root may talk to podd: %s: permission denied. Try again with sudo", c.socket)
	default:
		err = fmt.Errorf("query the daemon at %s: %w", c.socket, err)
	}
	return &ExitError{ExitUnavailable, err}
}
