#include "server/slots/outbox.h"

#include <utility>

#include "wire/data.h"

namespace cairn::server {

void Outbox::Send(ConnId conn, wire::FramePtr frame) {
  bytes_sent_ += frame->bytes();
  network_.Send(conn, std::move(frame));
}

void Outbox::SendError(ConnId conn, const wire::FrameHeader& request, const Status& error) {
  wire::FramePtr frame = wire::EncodeError(request, error, context_.pool());
  frame->header().state_version = context_.version().value;
  wire::Seal(*frame);
  Send(conn, std::move(frame));
}

}  // namespace cairn::server
