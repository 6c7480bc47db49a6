package localcluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAPITapHoldsBackWatchesOfGroupsAlone(t *testing.T) {
	lines := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("watch") == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.(http.Flusher).Flush() // the headers
		for line := range lines {
			fmt.Fprintln(w, line)
			w.(http.Flusher).Flush()
		}
	}))
	defer server.Close()
	tap := &APITap{}
	client := &http.Client{Transport: tap.wrap(http.DefaultTransport)}
	const groups = "/apis/rdma-multicast.dev/v1alpha1/multicastgroups"

	watch, err := client.Get(server.URL + groups + "?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Body.Close() }() // in case of an early end
	read := make(chan string)
	go func() {
		defer close(read)
		buf := make([]byte, 64)
		for {
			n, err := watch.Body.Read(buf)
			if err != nil {
				return
			}
			read <- string(buf[:n])
		}
	}()

	lines <- "first"
	if got := <-read; got != "first\n" {
		t.Fatalf("read %q", got)
	}
	tap.StallGroupWatches()
	lines <- "second"
	// Another request of the same client is answered meanwhile.
	resp, err := client.Get(server.URL + groups + "/one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	select {
	case got := <-read:
		t.Errorf("read %q while watches were stalled", got)
	case <-time.After(100 * time.Millisecond): // what must not happen has had its chance
	}
	tap.Resume()
	if got := <-read; got != "second\n" {
		t.Errorf("read %q after Resume", got)
	}

	tap.StallGroupWatches()
	lines <- "third"
	if err := watch.Body.Close(); err != nil { // ends a stalled Read
		t.Error(err)
	}
	for range read {
	}
	close(lines)

	want := []APICall{{Method: "GET", Path: groups + "/one", Status: http.StatusNotFound}}
	if diff := cmp.Diff(want, tap.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	tap.Forget()
	if got := tap.Calls(); len(got) > 0 {
		t.Errorf("calls after Forget: %v", got)
	}
}
