#include "client/protocol/call_gate.h"

#include <utility>

namespace cairn::client {

Status CallGate::Begin(CallerId caller, Call<void()> call, std::shared_ptr<OpenTrip>* trip) {
  *trip = nullptr;
  if (closed_) return closed_why_;
  if (*trip = trips_.Of(caller); *trip != nullptr) {
    (*trip)->Add(std::move(call));
  } else {
    way_.Post(std::move(call));
  }
  return Status::Ok();
}

void CallGate::SendTripOf(CallerId caller) {
  if (const auto trip = trips_.Of(caller)) trip->Send();
}

bool CallGate::Close(const Status& why) {
  if (closed_) return false;
  closed_ = true;
  closed_why_ = why;
  trips_.SendAll();  // so that its calls end
  return true;
}

}  // namespace cairn::client
