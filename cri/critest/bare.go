package critest

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Bare has a client that does nothing else make n calls, one after the other, and returns
// how long they took, including the Delay of ListContainers and any other load on this
// machine. It is the control for a client that works between the same number of calls. The
// calls count like any others.
func (s *Server) Bare(n int) time.Duration {
	s.t.Helper()
	conn, err := grpc.NewClient(s.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	call := func() {
		request := &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: "none"}}
		if _, err := client.ListContainers(context.Background(), request); err != nil {
			s.t.Fatal(err)
		}
	}
	call() // connects
	began := time.Now()
	for range n {
		call()
	}
	return time.Since(began)
}
