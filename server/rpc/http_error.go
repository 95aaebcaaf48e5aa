package rpc

import (
	"math"
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/server/rpc/wire"
)

// HasReason reports whether an error is a status with a reason of the contract.
func HasReason(err error) bool { return reasonIn(status.Convert(err)) != "" }

// WriteError answers an HTTP request with google.rpc.Status as JSON and the HTTP code of the
// contract. err is a gRPC status.
func WriteError(w http.ResponseWriter, err error) {
	st := status.Convert(err)
	code := runtime.HTTPStatusFromCode(st.Code())
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			code = httpCode(st.Code(), contract.Reason(d.Reason))
		case *errdetails.RetryInfo:
			seconds := math.Ceil(d.RetryDelay.AsDuration().Seconds())
			w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		}
	}
	body, err := wire.NewJSON().Marshal(st.Proto())
	if err != nil {
		body = []byte(`{"code":13,"message":"the error could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

func httpCode(code codes.Code, r contract.Reason) int {
	if code == codes.DeadlineExceeded {
		return http.StatusGatewayTimeout
	}
	return r.Info().HTTP
}
