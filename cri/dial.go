package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pluginconn"
	"podd/internal/pod"
	"podd/internal/slots"
)

const (
	// requestTimeout is the kubelet's default runtimeRequestTimeout.
	requestTimeout = 2 * time.Minute
	// createTimeout bounds RunPodSandbox and CreateContainer. It is deliberately
	// long: a create that is abandoned leaves its name reserved in the runtime
	// (containerd#4604).
	createTimeout = 10 * time.Minute
	// execGrace is how long the runtime has to kill a command that exceeded its
	// timeout and to read the rest of its output; the result is the same after that.
	// A process that the command left behind keeps its output open, and containerd
	// would wait for that too: in the kubelet, for two minutes.
	execGrace = 2 * time.Second
	// lookupTimeout bounds the query whether a failed create succeeded after all.
	lookupTimeout = 10 * time.Second
)

// Conn is a connection to one container runtime. Over it, podd queries the runtime's
// version, features and status. A Client's options depend on the results, so these come
// before there is a Client. Create it with Connect. All methods are safe for concurrent
// use.
type Conn struct {
	requestTimeout, createTimeout time.Duration

	log      *slog.Logger
	metrics  *metrics
	conn     *grpc.ClientConn
	runtime  runtimeapi.RuntimeServiceClient
	image    runtimeapi.ImageServiceClient
	endpoint string
	slots    map[callKind]*slots.Slots
	stall    *stallWatch

	// The event stream has its own connection: while somebody reads events too slowly,
	// containerd blocks every call that causes one.
	eventConn *grpc.ClientConn
	events    runtimeapi.RuntimeServiceClient
}

// Client runs pods over a connection. Create it with NewClient.
type Client struct {
	*Conn
	spec       spec.Options
	otherPodds otherPodds
	sizeHint   sizeHint

	memoMu         sync.Mutex
	memo           map[pod.UID]*podMemo // guarded by memoMu
	memoGeneration uint64               // counts changes that invalidate memos; guarded by memoMu

	roster *roster
	lister lister
}

// Connect returns a Conn to a CRI endpoint: unix:///path or /path. It sends nothing:
// the first call connects, and a later call reconnects if the runtime was restarted.
// While nothing listens there, calls fail at once with pod.ErrUnavailable. The
// timeout bounds most calls; 0 is 2 minutes (runtimeRequestTimeout).
func Connect(endpoint string, timeout time.Duration, log *slog.Logger, reg prometheus.Registerer) (*Conn, error) {
	socket, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		requestTimeout: cmp.Or(timeout, requestTimeout), createTimeout: createTimeout,
		log: log, endpoint: "unix://" + socket, metrics: newMetrics(reg), slots: newSlots(),
	}
	c.stall = c.newStallWatch(socket)
	watched := func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dialUnix(ctx, addr)
		if err != nil {
			return nil, err
		}
		return c.stall.watch(conn), nil
	}
	if c.conn, err = newChannel(socket, watched, grpc.WithUnaryInterceptor(c.intercept)); err == nil {
		c.eventConn, err = newChannel(socket, dialUnix)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the container runtime at %s: %w", c.endpoint, err)
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(c.conn)
	c.image = runtimeapi.NewImageServiceClient(c.conn)
	c.events = runtimeapi.NewRuntimeServiceClient(c.eventConn)
	return c, nil
}

func dialUnix(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", socket)
}

// newChannel returns a gRPC channel to a socket, which connects with its first call.
func newChannel(socket string, dial func(context.Context, string) (net.Conn, error), opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return pluginconn.Dial(socket, pod.MaxRuntimeMessage, append(opts,
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(pod.MaxRuntimeMessage)),
		// A runtime that was restarted must be in use again at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithIdleTimeout(0),
	)...)
}

// newStallWatch returns the watch over the connection for calls.
func (c *Conn) newStallWatch(socket string) *stallWatch {
	return &stallWatch{
		log: c.log, replaced: c.metrics.replaced, endpoint: c.endpoint,
		ping: func(ctx context.Context) error {
			return pingVersion(ctx, c.runtime)
		},
		pingNew: func(ctx context.Context) error {
			conn, err := newChannel(socket, dialUnix)
			if err != nil {
				return err
			}
			defer conn.Close()
			return pingVersion(ctx, runtimeapi.NewRuntimeServiceClient(conn))
		},
	}
}

// NewClient returns a Client on a connection. The options are the node's settings, the
// identity of this podd, and where pods' files and logs are; some may have come over the
// same connection. Closing either closes both.
func NewClient(conn *Conn, opts spec.Options) *Client {
	return &Client{Conn: conn, spec: opts.WithDefaults(), memo: map[pod.UID]*podMemo{}, roster: newRoster()}
}

// Check queries the runtime's version. Errors: pod.ErrUnavailable if nothing
// responds, pod.ErrUnimplemented if the runtime does not speak CRI v1.
func (c *Conn) Check(ctx context.Context) (Version, error) {
	v, err := c.Version(ctx)
	if err != nil {
		return v, c.connectError(err)
	}
	if v.APIVersion != "v1" {
		return v, c.wrongVersion(v.APIVersion)
	}
	c.log.Info("connected to the container runtime", "endpoint", c.endpoint, "name", v.Name, "version", v.Version, "cri", v.APIVersion)
	return v, nil
}

// Close closes the connection; calls in progress fail.
func (c *Conn) Close() error {
	c.stall.close()
	return errors.Join(c.conn.Close(), c.eventConn.Close())
}

// Endpoint returns the runtime's address, as unix:///path.
func (c *Conn) Endpoint() string { return c.endpoint }

func socketPath(endpoint string) (string, error) {
	p, isURL := strings.CutPrefix(endpoint, "unix://")
	switch {
	case isURL && strings.HasPrefix(p, "/"), !isURL && strings.HasPrefix(endpoint, "/"):
		return path.Clean(p), nil
	default:
		return "", fmt.Errorf("container runtime endpoint %q: only unix sockets are supported; write unix:///run/…/runtime.sock", endpoint)
	}
}

// connectError explains why the first call failed.
func (c *Conn) connectError(err error) error {
	if errors.Is(err, pod.ErrUnimplemented) {
		return c.wrongVersion("another version, or something that is not CRI,")
	}
	return fmt.Errorf("connect to the container runtime at %s: %w", c.endpoint, err)
}

func (c *Conn) wrongVersion(spoken string) error {
	return fmt.Errorf("the container runtime at %s speaks %s and podd speaks CRI v1 only: use containerd 1.6 or newer, or CRI-O 1.26 or newer, and check that its CRI plugin is enabled: %w",
		c.endpoint, spoken, pod.ErrUnimplemented)
}

// intercept gives every call its slot, its deadline and its metrics. The wait for the slot
// counts for neither of the others. If a call ended with a connection that stood still, and
// the call may be made twice, it is made again on the new connection.
func (c *Conn) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := path.Base(method)
	if turns := c.slots[kindOf(name)]; turns != nil {
		leave, err := turns.Acquire(ctx, restOf(req))
		if err != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		defer leave()
	}
	if d := c.deadline(name, req); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	c.stall.callStarted()
	defer c.stall.callEnded()
	start := time.Now()
	for {
		dropped := c.stall.dropped.Load()
		closing := c.stall.closing.Load()
		err := invoke(ctx, method, req, reply, cc, opts...)
		lost := status.Code(err) == codes.Unavailable && (closing || c.stall.dropped.Load() != dropped) && ctx.Err() == nil
		if lost && isRepeatable(name) {
			continue
		}
		if lost {
			err = status.Error(codes.Unavailable, "the connection to the runtime stood still and was replaced; whether the runtime has carried the call out is looked up")
		}
		c.metrics.observe(operationTypes[name], time.Since(start), err)
		return err
	}
}

// deadline returns how long a call of that name may take; 0 for no bound.
func (c *Conn) deadline(name string, req any) time.Duration {
	switch name {
	case "PullImage":
		return 0 // the caller watches its progress
	case "RunPodSandbox", "CreateContainer":
		return c.createTimeout
	case "ExecSync":
		r, ok := req.(*runtimeapi.ExecSyncRequest)
		if !ok || r.GetTimeout() == 0 {
			return 0 // the caller ends it
		}
		return time.Duration(r.GetTimeout())*time.Second + min(execGrace, c.requestTimeout)
	case "CheckpointContainer":
		if r, ok := req.(*runtimeapi.CheckpointContainerRequest); ok && r.GetTimeout() > 0 {
			return time.Duration(r.GetTimeout())*time.Second + min(execGrace, c.requestTimeout)
		}
	case "StopContainer":
		if r, ok := req.(*runtimeapi.StopContainerRequest); ok {
			return time.Duration(r.GetTimeout())*time.Second + c.requestTimeout
		}
	}
	return c.requestTimeout
}
