#include "reader.hpp"

#include <algorithm>

namespace constrint {

namespace {

constexpr size_t kMaxCharacters = 20000;
constexpr int kMaxNesting = 60;

enum class Kind { kEnd, kNumber, kName, kSign };

struct Token {
  Kind kind = Kind::kEnd;
  std::string_view text;
  int64_t number = 0;
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  Reader(Model& model, const std::unordered_map<std::string, int>& names, std::string_view text)
      : model_(model), names_(names), text_(text) {
    advance();
  }

  int whole() {
    int found = condition(disjunction());
    if (token_.kind != Kind::kEnd) throw Unsupported{};
    return found;
  }

 private:
  // Brackets and prefix operators nest; the Python reader has the exact limit and the message.
  struct Deeper {
    explicit Deeper(int& depth) : depth_(depth) {
      if (++depth_ > kMaxNesting) throw Unsupported{};
    }
    ~Deeper() { --depth_; }
    int& depth_;
  };

  void advance() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    if (at_ == text_.size()) {
      token_ = {};
      return;
    }
    size_t start = at_;
    char c = text_[at_];
    if (is_digit(c)) {
      number();
      return;
    }
    if (is_letter(c)) {
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
      token_ = {Kind::kName, text_.substr(start, at_ - start), 0};
      return;
    }
    static constexpr std::string_view kPairs[] = {"**", "//", "<=", ">=", "==", "!="};
    std::string_view two = text_.substr(at_, 2);
    size_t length = std::find(std::begin(kPairs), std::end(kPairs), two) != std::end(kPairs) ? 2 : 1;
    if (length == 1 && std::string_view("+-*%<>()[],").find(c) == std::string_view::npos) throw Unsupported{};
    token_ = {Kind::kSign, text_.substr(at_, length), 0};
    at_ += length;
  }

  void number() {
    size_t start = at_;
    int64_t value = 0;
    while (at_ < text_.size() && is_digit(text_[at_])) {
      if (value > kMaxMagnitude / 10) throw Unsupported{};
      value = value * 10 + (text_[at_++] - '0');
    }
    bool leading_zero = at_ - start > 1 && text_[start] == '0';
    bool goes_on = at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.');
    if (leading_zero || goes_on || value >= kMaxMagnitude) throw Unsupported{};
    token_ = {Kind::kNumber, text_.substr(start, at_ - start), value};
  }

  bool sees(std::string_view text) const { return token_.kind != Kind::kEnd && token_.text == text; }
  bool takes(std::string_view text) {
    if (!sees(text)) return false;
    advance();
    return true;
  }
  void expect(std::string_view text) {
    if (!takes(text)) throw Unsupported{};
  }

  // A number whose truth counts holds where it is not 0.
  int condition(int node) {
    if (is_condition(model_.nodes[node].op)) return node;
    return model_.node(Op::kNe, {node, model_.constant(0)});
  }
  int number_of(int node) const {
    if (is_condition(model_.nodes[node].op)) throw Unsupported{};
    return node;
  }

  int disjunction() {
    int first = conjunction();
    if (!sees("or")) return first;
    std::vector<int> parts = {condition(first)};
    while (takes("or")) parts.push_back(condition(conjunction()));
    return model_.node(Op::kOr, parts);
  }

  int conjunction() {
    int first = negation();
    if (!sees("and")) return first;
    std::vector<int> parts = {condition(first)};
    while (takes("and")) parts.push_back(condition(negation()));
    return model_.node(Op::kAnd, parts);
  }

  int negation() {
    if (!takes("not")) return comparison();
    Deeper deeper(depth_);
    return model_.node(Op::kNot, {condition(negation())});
  }

  int comparison() {
    int left = sum();
    std::vector<int> parts;
    for (;;) {
      if (sees("in") || sees("not")) {
        // Only `x in (...)` alone: a chain with it is rare.
        if (!parts.empty()) throw Unsupported{};
        return membership(number_of(left));
      }
      Op op = Op::kEq;
      bool swapped = false;
      if (takes("==")) op = Op::kEq;
      else if (takes("!=")) op = Op::kNe;
      else if (takes("<=")) op = Op::kLe;
      else if (takes("<")) op = Op::kLt;
      else if (takes(">=")) op = Op::kLe, swapped = true;
      else if (takes(">")) op = Op::kLt, swapped = true;
      else break;
      int right = sum();
      int a = number_of(left), b = number_of(right);
      parts.push_back(swapped ? model_.node(op, {b, a}) : model_.node(op, {a, b}));
      left = right;
    }
    if (parts.empty()) return left;
    return parts.size() == 1 ? parts[0] : model_.node(Op::kAnd, parts);
  }

  int membership(int left) {
    bool inverted = takes("not");
    expect("in");
    std::string_view closing = sees("(") ? ")" : sees("[") ? "]" : std::string_view();
    if (closing.empty()) throw Unsupported{};
    advance();
    std::vector<int64_t> values;
    bool comma = false;
    while (!sees(closing)) {
      bool negative = takes("-");
      if (token_.kind != Kind::kNumber) throw Unsupported{};
      values.push_back(negative ? -token_.number : token_.number);
      advance();
      comma |= sees(",");
      if (!takes(",") && !sees(closing)) throw Unsupported{};
    }
    // `(4)` is a number in brackets, not a list; an empty list has its own message.
    if (values.empty() || (closing == ")" && !comma)) throw Unsupported{};
    advance();
    if (sees("in") || sees("==") || sees("!=") || sees("<") || sees(">") || sees("<=") || sees(">=")) throw Unsupported{};
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    int found = model_.node(Op::kInList, {left}, model_.list(values));
    if (!inverted) return found;
    found = model_.node(Op::kNot, {found});
    // Without a value it is not in the list either, but the test is false.
    return partial(left) ? model_.node(Op::kAnd, {model_.node(Op::kEq, {left, left}), found}) : found;
  }

  bool partial(int node) const {
    const Node& n = model_.nodes[node];
    if (n.op == Op::kFloorDiv || n.op == Op::kMod) return true;
    return std::any_of(n.args.begin(), n.args.end(), [this](int a) { return partial(a); });
  }

  int sum() {
    int left = product();
    if (!sees("+") && !sees("-")) return left;
    std::vector<int> terms = {number_of(left)};
    while (sees("+") || sees("-")) {
      bool minus = token_.text == "-";
      advance();
      int term = number_of(product());
      terms.push_back(minus ? negated(term) : term);
    }
    return model_.node(Op::kAdd, terms);
  }

  int product() {
    int left = prefixed();
    while (sees("*") || sees("//") || sees("%")) {
      Op op = token_.text == "*" ? Op::kMul : token_.text == "%" ? Op::kMod : Op::kFloorDiv;
      advance();
      int right = number_of(prefixed());
      std::vector<int> args = {number_of(left)};
      if (op == Op::kMul && model_.nodes[left].op == Op::kMul) args = model_.nodes[left].args;
      args.push_back(right);
      left = model_.node(op, args);
    }
    return left;
  }

  int negated(int node) {
    const Node& n = model_.nodes[node];
    return n.op == Op::kConst ? model_.constant(-n.value) : model_.node(Op::kNeg, {node});
  }

  int prefixed() {
    if (sees("-") || sees("+")) {
      Deeper deeper(depth_);
      bool minus = token_.text == "-";
      advance();
      int operand = number_of(prefixed());
      return minus ? negated(operand) : operand;
    }
    int base = atom();
    if (!takes("**")) return base;
    Deeper deeper(depth_);
    int exponent = number_of(prefixed());
    // Other powers may be huge or undefined: the Python reader says so at once.
    const Node& power = model_.nodes[exponent];
    if (power.op != Op::kConst || power.value < 0 || power.value > 62) throw Unsupported{};
    return model_.node(Op::kPow, {number_of(base), exponent});
  }

  int atom() {
    if (token_.kind == Kind::kNumber) {
      int found = model_.constant(token_.number);
      advance();
      return found;
    }
    if (takes("(")) {
      Deeper deeper(depth_);
      int found = disjunction();
      expect(")");
      return found;
    }
    if (token_.kind != Kind::kName) throw Unsupported{};
    std::string name(token_.text);
    advance();
    if (sees("(")) return call(name);
    auto at = names_.find(name);
    if (at == names_.end()) throw Unsupported{};
    return model_.variable(at->second);
  }

  int call(const std::string& name) {
    Op op = name == "min" ? Op::kMin : name == "max" ? Op::kMax : Op::kAbs;
    if (op == Op::kAbs && name != "abs") throw Unsupported{};
    Deeper deeper(depth_);
    expect("(");
    std::vector<int> args;
    do args.push_back(number_of(sum()));
    while (takes(","));
    expect(")");
    if (op == Op::kAbs ? args.size() != 1 : args.size() < 2) throw Unsupported{};
    return model_.node(op, args);
  }

  Model& model_;
  const std::unordered_map<std::string, int>& names_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  Token token_;
};

}  // namespace

int read_restriction(Model& model, const std::unordered_map<std::string, int>& names, std::string_view text) {
  if (text.size() > kMaxCharacters) throw Unsupported{};
  // Python's reader strips the text, too.
  auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return Reader(model, names, text).whole();
}

}  // namespace constrint
